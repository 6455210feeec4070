"""`jitney serve` for curl, browsers, KServe's version 1 and OpenAI's clients: every kind of model in one server."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import requests

from harness import onnx
from harness.archives import Store, members
from harness.client import curl
from harness.server import Server

APP = """
from typing import Iterator

import jitney
import numpy as np


@jitney.batch(max_batch_size=8, max_batch_delay_ms=2000)
def shout(text: list[str]) -> list[str]:
    return [one.upper() for one in text]


@jitney.batch(max_batch_size=64)
def scale(x: np.ndarray) -> np.ndarray:
    return x * 2


@jitney.batch(openai="embeddings")
def embed(text: list[str]) -> list[dict]:
    return [{"embedding": [len(one), 0.5], "tokens": len(one.split())} for one in text]


@jitney.model
class Odd:
    @jitney.endpoint
    def predict(self, value: float) -> dict:
        return {"value": value, "all": [float("nan"), float("inf"), 1.5]}

    @jitney.endpoint
    def explain(self, value: float) -> str:
        return f"because of {value}"

    @jitney.endpoint
    def tell(self, words: int) -> Iterator[str]:
        for word in range(words):
            yield f"word {word}\\n"
        if words == 3:
            raise jitney.BadInput("three is too many")
"""

BODY = """
def handle(data, context):
    if data is None:
        return None
    values = [row.get("data", row.get("body")) for row in data]
    answer = {"nan": {"x": float("nan")}, "raise": None}
    return [answer.get(one) if isinstance(one, str) and one in answer else form(one) for one in values]

def form(value):
    if value == [0]:
        raise ValueError("zero")
    return value.decode() + "!" if isinstance(value, (bytes, bytearray)) else value
"""

WRAPPED = """
def handle(data, context):
    return data and [sum(row) for row in data]
"""


def two(path: Path) -> Path:
    """`s = a + b` and `d = a - b`."""
    nodes = [onnx.node("Add", ["a", "b"], "s"), onnx.node("Sub", ["a", "b"], "d")]
    values = [onnx.value(name, onnx.FLOAT, ["n", 2]) for name in "absd"]
    return onnx.write(path, nodes, values[:2], values[2:])


@pytest.fixture(scope="module")
def served(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("v1")
    store = Store(home / "store")
    (home / "app.py").write_text(APP)
    files = members("wrapped", "wrapped", source=WRAPPED)
    manifest = json.loads(files["MAR-INF/MANIFEST.json"])
    manifest["model"]["envelope"] = "kserve"
    files["MAR-INF/MANIFEST.json"] = json.dumps(manifest)
    archives = [store.mar("plain", source=BODY), store.zip("wrapped.mar", files)]
    single = onnx.write(
        home / "single.onnx",
        [onnx.node("Neg", ["x"], "y")],
        [onnx.value("x", onnx.FLOAT, ["n", 2])],
        [onnx.value("y", onnx.FLOAT, ["n", 2])],
    )
    definitions = [f"app.py:{name}" for name in ("shout", "scale", "embed", "Odd")]
    server = Server(
        binary, home / "server", ["serve", *archives, single, two(home / "two.onnx"), *definitions], cwd=home
    )
    yield server.started()
    server.end()


def ask(server: Server, model: str, body: object, verb: str = "predict") -> requests.Response:
    return requests.post(server.url(f"/v1/models/{model}:{verb}"), json=body, timeout=120)


# -- HTTP as people use it ---------------------------------------------------------------------


def test_curl_sends_text_in_every_way(served: Server) -> None:
    url = served.url("/predictions/plain")
    assert curl("-d", "def f(x=1): pass", url).content == b"def f(x=1): pass!"
    assert curl("-d", '{"a": 1}', url).content == b'{"a": 1}!', "its type is that of a form"
    assert json.loads(curl("--json", '{"a": 1}', url).content) == {"a": 1}
    assert curl("-T", __file__, url).content.endswith(b"!")
    assert curl("-d", "data=hello world", url).content == b"hello world!"
    assert curl("-d", "hello", served.url("/shout")).content == b"HELLO"
    assert curl("-d", '{"text": "hello"}', served.url("/shout")).content == b"HELLO"
    assert curl("-d", "text=hello", served.url("/shout")).content == b"HELLO"


def test_every_answer_has_the_type_that_it_looks_like(served: Server) -> None:
    def type_of(body: object) -> str:
        return served.predict("plain", body).headers["content-type"]

    assert type_of({"a": 1}) == "application/json"
    assert type_of("text") == "text/plain; charset=utf-8"
    assert type_of({"body": "[PAD] x [SEP]"}["body"]) == "text/plain; charset=utf-8"
    assert type_of([]) == "application/json"
    assert type_of("") == "application/octet-stream"
    assert requests.get(served.url("/nothing/at/all"), timeout=120).headers["content-type"] == "application/json"


def test_numbers_that_json_does_not_have_are_null(served: Server) -> None:
    def strict(reply: requests.Response) -> object:
        return json.loads(reply.text, parse_constant=pytest.fail)

    odd = requests.post(served.url("/Odd/predict"), json={"value": 1}, timeout=120)
    assert strict(odd) == {"value": 1.0, "all": [None, None, 1.5]}
    assert strict(served.predict("plain", "nan")) == {"x": None}
    largest = served.predict("two", {"a": [[3e38, 1]], "b": [[3e38, 1]]})
    assert strict(largest) == {"s": [[None, 2.0]], "d": [[0.0, 0.0]]}
    assert strict(ask(served, "Odd", {"instances": [2]}))["predictions"][0]["all"] == [None, None, 1.5]


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "HEAD"])
def test_a_method_that_asks_for_no_prediction_runs_no_model(served: Server, method: str) -> None:
    before = served.metric("ts_inference_requests_total", "plain")
    for path in ("/predictions/plain", "/plain", "/v1/models/plain:predict", "/invocations"):
        assert requests.request(method, served.url(path), data=b"x", timeout=120).status_code == 405
    assert served.metric("ts_inference_requests_total", "plain") == before


def test_a_stream_is_events_for_who_accepts_them(served: Server) -> None:
    def tell(words: int, accept: str) -> requests.Response:
        return requests.post(
            served.url("/Odd/tell"), json={"words": words}, headers={"Accept": accept}, timeout=120, stream=True
        )

    events = tell(2, "text/event-stream")
    assert events.headers["content-type"] == "text/event-stream"
    assert events.text == "data: word 0\ndata: \n\ndata: word 1\ndata: \n\nevent: end\ndata: \n\n"
    assert tell(0, "text/event-stream").text == "event: end\ndata: \n\n"
    *_, name, data, last, _ = tell(3, "application/json, text/event-stream").text.split("\n")
    assert (name, last) == ("event: error", "")
    assert json.loads(data.removeprefix("data: "))["message"] == "three is too many"
    assert tell(2, "*/*").text == "word 0\nword 1\n"


# -- KServe's version 1 ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "instances", "predictions"),
    [
        ("plain", [[1, 2], "text", {"x": 1}], [[1, 2], "text", {"x": 1}]),
        ("plain", [{"b64": base64.b64encode(b"hi").decode()}, {"data": "b"}], ["hi!", "b"]),
        ("wrapped", [[1, 2], [3]], [3, 3]),
        ("shout", ["a", {"text": "b"}], ["A", "B"]),
        ("scale", [[1, 2], [3, 4]], [[2, 4], [6, 8]]),
        ("scale", [{"x": [1]}, {"x": [2]}], [[2], [4]]),
        ("single", [[1, 2], [3, 4]], [[-1, -2], [-3, -4]]),
        ("two", [{"a": [1, 2], "b": [1, 1]}] * 2, [{"s": [2, 3], "d": [0, 1]}] * 2),
        ("plain", [], []),
        ("single", [], []),
    ],
)
def test_instances_become_predictions(served: Server, model: str, instances: list, predictions: list) -> None:
    reply = ask(served, model, {"instances": instances})
    assert (reply.status_code, reply.json()) == (200, {"predictions": predictions}), reply.text
    assert reply.headers["content-type"] == "application/json"


def test_the_instances_of_a_request_are_items_of_a_batch(served: Server) -> None:
    reply = ask(served, "shout", {"instances": [f"text {number}" for number in range(20)]})
    assert reply.json()["predictions"] == [f"TEXT {number}" for number in range(20)]
    assert 'batch;desc="8 of 8' in reply.headers["server-timing"] or 'desc="4 of 8' in reply.headers["server-timing"]


def test_versions_and_explanations(served: Server) -> None:
    url = served.url("/v1/models/single/versions/{}:predict")
    version = served.describe("single")["modelVersion"]
    assert requests.post(url.format(version), json={"instances": [[1, 2]]}, timeout=120).json() == {
        "predictions": [[-1, -2]]
    }
    assert requests.post(url.format("9"), json={"instances": [[1, 2]]}, timeout=120).status_code == 404
    assert ask(served, "Odd", {"instances": [1, 2]}, "explain").json() == {
        "explanations": ["because of 1.0", "because of 2.0"]
    }
    assert ask(served, "wrapped", {"instances": [[1]]}, "explain").json() == {"explanations": [1]}
    assert "gives no explanations" in ask(served, "single", {"instances": []}, "explain").json()["error"]


@pytest.mark.parametrize(
    ("model", "body", "words"),
    [
        ("plain", {"inputs": []}, ['"plain"', '"instances"', 'got "inputs"']),
        ("single", {"instances": 3}, ['"single"', "must be a list, not a number"]),
        ("single", {"instances": [[1, 2, 3]]}, ["[n, 2]", "[1, 3]"]),
        ("two", {"instances": [[1, 2]]}, ['"two"', '"a" and "b"', "got a list"]),
        ("shout", {"instances": ["a", 1]}, ["value 1 of 2", "expected text"]),
        ("plain", {"instances": [{"b64": 1}]}, ["instance 0", "b64"]),
    ],
)
def test_what_is_wrong_is_said_where_clients_look(served: Server, model: str, body: object, words: list[str]) -> None:
    reply = ask(served, model, body)
    assert reply.status_code == 400, reply.text
    problem = reply.json()
    assert problem["error"] == problem["message"] and problem["code"] == 400
    for word in words:
        assert word in problem["error"], problem


def test_one_instance_that_fails_is_named(served: Server) -> None:
    reply = ask(served, "plain", {"instances": [[1], [0], [2]]})
    assert reply.status_code == 503 and reply.json()["error"] == "value 1 of 3: Prediction failed"
    missing = ask(served, "nobody", {"instances": []})
    assert missing.status_code == 404 and "nobody" in missing.json()["error"]


def test_the_models_in_one_body_for_both_clients(served: Server) -> None:
    listed = requests.get(served.url("/v1/models"), timeout=120).json()
    names = ["Odd", "embed", "plain", "scale", "shout", "single", "two", "wrapped"]
    assert listed["models"] == names and [one["id"] for one in listed["data"]] == names
    ready = requests.get(served.url("/v1/models/plain"), timeout=120)
    assert (ready.status_code, ready.json()["name"], ready.json()["ready"]) == (200, "plain", True)
    assert requests.get(served.url("/"), timeout=120).json()["status"] == "alive"
    assert served.manage("PUT", "/models/wrapped", min_worker=0, max_worker=0, synchronous="true").status_code == 200
    gone = requests.get(served.url("/v1/models/wrapped"), timeout=120)
    assert (gone.status_code, gone.json()["ready"]) == (503, False) and "wrapped" in gone.json()["error"]
    assert served.manage("PUT", "/models/wrapped", min_worker=1, synchronous="true").status_code == 200


# -- OpenAI's client ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(served: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.url("/v1"), api_key="none", max_retries=0) as client:
        yield client


def test_openais_client_gets_embeddings(client: openai.OpenAI) -> None:
    several = client.embeddings.create(model="embed", input=["a b", "one two three"])
    assert [(one.index, one.embedding) for one in several.data] == [(0, [3, 0.5]), (1, [13, 0.5])]
    assert (several.model, several.usage.prompt_tokens, several.usage.total_tokens) == ("embed", 5, 5)
    plain = client.embeddings.create(model="embed", input="a", encoding_format="float")
    assert plain.data[0].embedding == [1, 0.5]
    encoded = client.embeddings.with_raw_response.create(model="embed", input="a", encoding_format="base64")
    text = json.loads(encoded.content)["data"][0]["embedding"]
    assert struct.unpack("<2f", base64.b64decode(text)) == (1, 0.5)


def test_openais_client_reads_our_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="tokens, which the model does not take"):
        client.embeddings.create(model="embed", input=[1, 2])
    with pytest.raises(openai.BadRequestError, match='does not say openai="embeddings"'):
        client.embeddings.create(model="shout", input="a")
    with pytest.raises(openai.NotFoundError, match="nobody") as missing:
        client.embeddings.create(model="nobody", input="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="embed", input="a", dimensions=2)


def test_openais_client_lists_models(client: openai.OpenAI) -> None:
    assert "embed" in [model.id for model in client.models.list()]
    assert client.models.retrieve("embed").owned_by == "jitney"
