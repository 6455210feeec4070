"""Open Inference over REST as Triton's own client speaks it, and what is wrong in ways that no client is."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from harness.archives import Store
from harness.server import ASK_SECONDS, Server

# `twice = 2 * ids` and `positive = ids > 0` over rows of any length.
MODEL = Path(__file__).parent.parent / "crates" / "onnx" / "src" / "testdata" / "length.onnx"
# Speaks the protocol itself: gives every input back.
MIRROR = """
def handle(data, context):
    def mirrored(row):
        outputs = [{**one, "name": "out_" + one["name"]} for one in row["body"]["inputs"]]
        return {"id": row["body"].get("id", ""), "outputs": outputs}
    return [mirrored(row) for row in data or []]
"""
APP = """
import numpy as np

import jitney


@jitney.batch(max_batch_size=8)
def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


def shout(text: str) -> str:
    return text.upper()


def words(text: str):
    yield from text.split()
"""
NAMES = {"rows", "echo", "mirror", "double", "shout", "words"}
DATATYPES = {
    "BOOL": np.array([[True, False]]),
    "UINT8": np.array([[0, 255]], np.uint8),
    "UINT16": np.array([[0, 65535]], np.uint16),
    "UINT32": np.array([[0, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[0, 2**64 - 1]], np.uint64),
    "INT8": np.array([[-128, 127]], np.int8),
    "INT16": np.array([[-(2**15), 2**15 - 1]], np.int16),
    "INT32": np.array([[-(2**31), 2**31 - 1]], np.int32),
    "INT64": np.array([[2**53 + 1, -(2**63)]], np.int64),
    "FP16": np.array([[0.1, -65504]], np.float16),
    "FP32": np.array([[0.1, 3.4028235e38]], np.float32),
    "FP64": np.array([[0.1, 5e-324]], np.float64),
    "BYTES": np.array([["ü", ""]], np.object_),
}


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An ONNX model, an archive that takes bodies, one that speaks the protocol, and definitions."""
    home = tmp_path_factory.mktemp("oip")
    (home / "app.py").write_text(APP)
    store = Store(home / "store")
    shutil.copy(MODEL, store.path / "rows.onnx")
    models = [
        store.path / "rows.onnx",
        store.mar("echo"),
        store.mar("mirror", source=MIRROR),
        "app:double",
        "app:shout",
        "app:words",
    ]
    server = Server(binary, home / "server", ["serve", *models, "--batch-size", "8"], store=store, cwd=home)
    yield server.started()
    server.end()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    url = server.urls["inference"].removeprefix("http://")
    with triton.InferenceServerClient(url, network_timeout=ASK_SECONDS, connection_timeout=ASK_SECONDS) as client:
        yield client


def tensor(name: str, array: np.ndarray, datatype: str, binary: bool = True) -> triton.InferInput:
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


def rows(*values: int) -> np.ndarray:
    return np.array([values], np.int64)


def test_the_server_says_what_it_is(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live() and client.is_server_ready()
    told = client.get_server_metadata()
    assert told["name"] == "jitney" and told["version"] != "0.12.0"
    assert {"binary_tensor_data", "statistics", "model_configuration", "classification"} <= set(told["extensions"])


def test_a_model_says_what_it_takes(client: triton.InferenceServerClient) -> None:
    for model in sorted(NAMES):
        version = client.get_model_metadata(model)["versions"][0]
        assert client.is_model_ready(model) and client.is_model_ready(model, version)
        assert client.get_model_config(model, version)["name"] == model
    assert not client.is_model_ready("unknown")
    told = client.get_model_metadata("rows")
    assert told["inputs"] == [{"name": "ids", "datatype": "INT64", "shape": [-1, -1]}]
    config = client.get_model_config("rows")
    assert config["max_batch_size"] in (0, 8)
    assert config["input"][0]["data_type"] == "TYPE_INT64"
    echo = client.get_model_metadata("echo")
    assert echo["inputs"] == [{"name": "data", "datatype": "BYTES", "shape": [-1]}]
    assert echo["outputs"] == [{"name": "output", "datatype": "BYTES", "shape": [-1]}]
    for ask in (client.get_model_metadata, client.get_model_config, client.get_inference_statistics):
        with pytest.raises(InferenceServerException, match="unknown"):
            ask("unknown")
    with pytest.raises(InferenceServerException, match=r"9\.9"):
        client.get_model_metadata("rows", "9.9")


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_inference_in_every_form(
    client: triton.InferenceServerClient, binary_in: bool, binary_out: bool | None
) -> None:
    outputs = None
    if binary_out is not None:
        outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("positive", "twice")]
    given = [tensor("ids", np.array([[3, -4, 2**20], [0, 1, 2]]), "INT64", binary_in)]
    answer = client.infer("rows", given, outputs=outputs, request_id="seven")
    told = answer.get_response()
    assert (told["id"], told["model_name"]) == ("seven", "rows")
    assert answer.as_numpy("twice").tolist() == [[6, -8, 2**21], [0, 2, 4]]
    assert answer.as_numpy("positive").tolist() == [[True, False, True], [False, True, True]]
    if outputs:
        assert [output["name"] for output in told["outputs"]] == ["positive", "twice"]
    one = client.infer("rows", given, outputs=[triton.InferRequestedOutput("twice")])
    assert [output["name"] for output in one.get_response()["outputs"]] == ["twice"]


def test_classes_in_place_of_scores(client: triton.InferenceServerClient) -> None:
    wanted = [triton.InferRequestedOutput("twice", class_count=2, binary_data=binary) for binary in (True, False)]
    given = [tensor("ids", np.array([[3, 9, 5], [7, 0, 1]]), "INT64")]
    for output in wanted:
        answer = client.infer("rows", given, outputs=[output]).as_numpy("twice")
        texts = [[text if isinstance(text, str) else text.decode() for text in row] for row in answer.tolist()]
        assert texts == [["18:1", "10:2"], ["14:0", "2:2"]]


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("raw", [True, False])
def test_every_type_there_and_back_exactly(client: triton.InferenceServerClient, datatype: str, raw: bool) -> None:
    if datatype == "FP16" and not raw:
        pytest.skip("the client sends halves as binary tensors only")
    array = DATATYPES[datatype]
    outputs = [triton.InferRequestedOutput("out_x", binary_data=raw)]
    more = [tensor("x", array, datatype, raw), tensor("y", DATATYPES["INT8"], "INT8")]
    answer = client.infer("mirror", more, outputs=outputs)
    told = answer.as_numpy("out_x")
    if datatype == "BYTES":
        told = np.array([[text if isinstance(text, str) else text.decode() for text in row] for row in told.tolist()])
    assert told.tolist() == array.tolist()
    assert answer.get_output("out_x")["datatype"] == datatype


def test_an_archive_gets_each_element_as_a_body(client: triton.InferenceServerClient, server: Server) -> None:
    texts = np.array([b"\xff\x00raw", b"", "ü".encode()], np.object_)
    answer = client.infer("echo", [tensor("data", texts, "BYTES")])
    assert answer.as_numpy("output").tolist() == texts.tolist()
    with pytest.raises(InferenceServerException, match="no UTF-8 text"):
        client.infer(
            "echo", [tensor("data", texts, "BYTES")], outputs=[triton.InferRequestedOutput("output", binary_data=False)]
        )
    reply = requests.post(
        server.url("/v2/models/echo/infer"), b"\xffraw", headers={"Inference-Header-Content-Length": "0"}, timeout=60
    )
    assert reply.status_code == 400 and "binary tensors" in reply.json()["error"]
    headers = {"Inference-Header-Content-Length": "0"}
    reply = requests.post(server.url("/v2/models/echo/infer"), b"text", headers=headers, timeout=ASK_SECONDS)
    assert reply.json()["outputs"] == [{"name": "output", "datatype": "BYTES", "shape": [1], "data": ["text"]}]
    assert reply.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("raw", [True, False])
def test_definitions_take_and_give_tensors(client: triton.InferenceServerClient, raw: bool) -> None:
    outputs = [triton.InferRequestedOutput("output", binary_data=raw)]
    array = np.array([[0.5, -1], [2, 3]], np.float32)
    answer = client.infer("double", [tensor("x", array, "FP32", raw)], outputs=outputs, request_id="d")
    assert answer.as_numpy("output").tolist() == (2 * array).tolist()
    many = np.arange(20_000, dtype=np.float32)
    assert (client.infer("double", [tensor("x", many, "FP32")]).as_numpy("output") == 2 * many).all()
    told = client.infer("shout", [tensor("text", np.array(["grün"], np.object_), "BYTES", raw)], outputs=outputs)
    [text] = told.as_numpy("output").tolist()
    assert (text if isinstance(text, str) else text.decode()) == "GRÜN"
    with pytest.raises(InferenceServerException, match="double"):
        client.infer("double", [tensor("y", array, "FP32")])


def test_generate_serves_every_kind_of_model(server: Server) -> None:
    def ask(path: str, **fields: Any) -> requests.Response:
        answer = requests.post(server.url(f"/v2/models/{path}"), json=fields, timeout=ASK_SECONDS)
        assert answer.status_code == 200, answer.text
        return answer

    assert ask("rows/generate", ids=[1, -2]).json()["twice"] == [2, -4]
    assert ask("double/generate", x=[0.5, 1]).json()["output"] == [1.0, 2.0]
    assert ask("shout/generate", text="grün").json()["output"] == "GRÜN"
    assert ask("echo/generate", data="text").json()["output"] == "text"
    event = ask("words/generate_stream", text="one two").text
    assert json.loads(event.removeprefix("data: "))["output"] == "onetwo"  # Tensors of a definition are whole.


def test_parameters_and_settings(client: triton.InferenceServerClient) -> None:
    given = [tensor("ids", rows(1), "INT64")]
    options = {"priority": 2, "timeout": 100_000_000, "parameters": {"mine": "x"}}
    assert client.infer("rows", given, **options).as_numpy("twice").tolist() == [[2]]
    with pytest.raises(InferenceServerException, match="priority"):
        client.infer("rows", given, priority="high")
    assert client.get_trace_settings()["trace_level"] == ["OFF"]
    assert client.get_trace_settings("rows")["trace_level"] == ["OFF"]
    assert client.get_log_settings()["log_error"] is True
    with pytest.raises(InferenceServerException, match="no traces"):
        client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})
    with pytest.raises(InferenceServerException, match="cannot be changed"):
        client.update_log_settings({"log_verbose_level": 1})
    client.unregister_cuda_shared_memory()
    assert client.get_cuda_shared_memory_status() == [] == client.get_system_shared_memory_status()
    with pytest.raises(InferenceServerException, match="shared memory"):
        client.register_cuda_shared_memory("region", b"handle", 0, 64)


def test_statistics_count_items_and_batches(client: triton.InferenceServerClient) -> None:
    def told() -> dict[str, Any]:
        return client.get_inference_statistics("rows")["model_stats"][0]

    before = told()
    client.infer("rows", [tensor("ids", np.ones((3, 2), np.int64), "INT64")])
    after = told()
    assert after["inference_count"] == before["inference_count"] + 3
    assert after["execution_count"] > before["execution_count"]
    success, compute = after["inference_stats"]["success"], after["inference_stats"]["compute_infer"]
    assert success["count"] == before["inference_stats"]["success"]["count"] + 1
    assert success["ns"] > before["inference_stats"]["success"]["ns"] and compute["ns"] > 0
    assert sum(size["compute_infer"]["count"] for size in after["batch_stats"]) == after["execution_count"]
    assert after["last_inference"] > 1_700_000_000_000
    names = {one["name"] for one in client.get_inference_statistics()["model_stats"]}
    assert names == NAMES


def test_the_repository_is_what_is_served(client: triton.InferenceServerClient) -> None:
    index = {one["name"]: one["state"] for one in client.get_model_repository_index()}
    assert index == dict.fromkeys(NAMES, "READY")
    with pytest.raises(InferenceServerException, match="unknown"):
        client.load_model("unknown")
    with pytest.raises(InferenceServerException, match="not taken from clients"):
        client.load_model("rows", config="{}")
    client.unload_model("mirror")
    assert not client.is_model_ready("mirror")
    client.load_model("mirror")
    assert client.is_model_ready("mirror")


def test_asynchronous_clients(server: Server, client: triton.InferenceServerClient) -> None:
    given = [tensor("ids", rows(4), "INT64")]
    pending = [client.async_infer("rows", given) for _ in range(4)]
    assert [one.get_result().as_numpy("twice").tolist() for one in pending] == [[[8]]] * 4

    async def ask() -> list[Any]:
        url = server.urls["inference"].removeprefix("http://")
        async with triton_aio.InferenceServerClient(url, conn_timeout=ASK_SECONDS) as session:
            assert await session.is_server_live() and await session.is_model_ready("rows")
            told = await session.get_model_metadata("rows"), await session.get_model_config("rows")
            assert {one["name"] for one in told} == {"rows"}
            stats = await session.get_inference_statistics("rows")
            assert stats["model_stats"][0]["name"] == "rows"
            answers = await asyncio.gather(*(session.infer("rows", given) for _ in range(4)))
            return [answer.as_numpy("twice").tolist() for answer in answers]

    assert asyncio.run(ask()) == [[[8]]] * 4


def body(data: Any = "[1]", shape: Any = "[1, 1]", datatype: str = "INT64", name: str = "ids", more: str = "") -> str:
    return f'{{"inputs": [{{"name": "{name}", "shape": {shape}, "datatype": "{datatype}", "data": {data}}}]{more}}}'


DEEP = "[" * 50_000
WRONG = {
    "no JSON": ("nonsense", "not JSON"),
    "nothing": ("", "not JSON"),
    "a list": ("[]", "not JSON"),
    "no inputs": ("{}", "inputs"),
    "deep JSON": ('{"inputs": ' + DEEP, "not JSON"),
    "deep data": (body(DEEP), "not JSON"),
    "deep parameters": (body(more=', "parameters": {"x": ' + DEEP), "not JSON"),
    "missing input": ('{"inputs": []}', "ids"),
    "unknown input": (body(name="other"), "other"),
    "unknown type": (body(datatype="INT65"), "INT65"),
    "wrong type": (body(datatype="FP32"), "INT64"),
    "wrong shape": (body(shape="[1]"), "ids"),
    "wrong length": (body(shape="[2, 1]"), "2 elements"),
    "negative shape": (body(shape="[-1, 1]"), "below 0"),
    "overflowing shape": (body(shape="[9223372036854775807, 9223372036854775807]"), "elements"),
    "overflowing size": (body(shape="[18446744073709551616]"), "not JSON"),
    "wrong element": (body('["x"]'), "INT64"),
    "duplicate outputs": (body(more=', "outputs": [{"name": "twice"}, {"name": "twice"}]'), "twice"),
    "unknown output": (body(more=', "outputs": [{"name": "thrice"}]'), "thrice"),
    "bad classification": (
        body(more=', "outputs": [{"name": "twice", "parameters": {"classification": "x"}}]'),
        "classification",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_told_what_is_wrong(server: Server, case: str) -> None:
    sent, expected = WRONG[case]
    reply = requests.post(server.url("/v2/models/rows/infer"), sent, timeout=ASK_SECONDS)
    told = reply.json()
    assert reply.status_code == 400, told
    assert (told["code"], told["error"]) == (400, told["message"]) and expected in told["error"], told


@pytest.mark.parametrize(
    ("length", "tail"), [("999999", b""), ("-1", b""), ("x", b""), (None, b"12345678more"), (None, b"1234567")]
)
def test_a_wrong_length_harms_nobody(server: Server, length: str | None, tail: bytes) -> None:
    given = {"name": "ids", "shape": [1, 1], "datatype": "INT64", "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [given]}).encode()
    headers = {"Inference-Header-Content-Length": length or str(len(head))}
    reply = requests.post(server.url("/v2/models/rows/infer"), head + tail, headers=headers, timeout=ASK_SECONDS)
    assert reply.status_code == 400 and reply.json()["error"], reply.text
    raw = struct.pack("<q", 21)
    headers = {"Inference-Header-Content-Length": str(len(head))}
    reply = requests.post(server.url("/v2/models/rows/infer"), head + raw, headers=headers, timeout=ASK_SECONDS)
    assert {output["name"]: output["data"] for output in reply.json()["outputs"]}["twice"] == [42]


def test_paths_and_methods_that_are_not_there(server: Server) -> None:
    for method, path, status in [
        ("GET", "/v2/models/rows/infer/more", 404),
        ("POST", "/v2/models/rows", 405),
        ("GET", "/v2/models/rows/versions/9", 404),
        ("POST", "/v2/models/unknown/infer", 404),
        ("GET", "/v2/nothing", 404),
    ]:
        reply = requests.request(method, server.url(path), data=body(), timeout=ASK_SECONDS)
        assert (reply.status_code, reply.json()["code"]) == (status, status), path
        # Triton's clients know an unknown model by these words.
        unknown = "Request for unknown model: 'unknown' is not found" if "unknown" in path else None
        assert reply.json()["error"] in (
            unknown,
            reply.json()["message"],
            f"Request for unknown model: {reply.json()['message']}",
        )
