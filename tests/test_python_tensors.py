"""Definitions in Python that are called in tensors, over the Open Inference Protocol: JSON, binary and gRPC."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

from harness.client import together
from harness.server import ASK_SECONDS, Server
from test_grpc import FREE_PORTS, address

APP = """
from typing import Annotated

import numpy as np

import jitney

FOR_EVER = 600_000


OUTPUTS = {"y": jitney.Tensor("FP32", [-1, -1]), "rows": jitney.Tensor("INT64", [-1])}


@jitney.batch(max_batch_size=4, max_batch_delay_ms=FOR_EVER, outputs=OUTPUTS)
def double(x: Annotated[np.ndarray, jitney.Tensor("FP32", [-1, -1])]) -> dict[str, np.ndarray]:
    return {"y": x * 2, "rows": np.full(len(x), len(x))}


@jitney.batch(max_batch_size=2)
def shout(text: list[str], times: list[int] = 1) -> list[str]:
    return [jitney.BadInput("say something") if not one else one.upper() * many for one, many in zip(text, times)]


@jitney.endpoint
def crop(image: np.ndarray, size: int = 1) -> np.ndarray:
    return image[:size, :size]


class Shop:
    @jitney.batch
    def price(self, order: list[dict]) -> list[float]:
        return [one["count"] * 2.5 for one in order]

    @jitney.batch
    def mean(self, image: Annotated[np.ndarray, jitney.Tensor("FP32", [-1, 3, 224, 224])]) -> np.ndarray:
        return image.mean(axis=(1, 2, 3))
"""
NUMPY = {"FP32": "<f4", "INT64": "<i8", "INT32": "<i4", "FP64": "<f8"}


@pytest.fixture(scope="module")
def served(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("tensors")
    (home / "app.py").write_text(APP)
    models = [f"app:{name}" for name in ("double", "shout", "crop", "Shop")]
    server = Server(binary, home / "server", ["serve", *models], cwd=home, env=FREE_PORTS)
    yield server.started()
    server.end()


def described(name: str, value: object) -> tuple[dict, bytes]:
    """An input of a binary request, and its bytes."""
    if isinstance(value, list):
        raw = b"".join(struct.pack("<I", len(one.encode())) + one.encode() for one in value)
        return {"name": name, "datatype": "BYTES", "shape": [len(value)]}, raw
    array = np.asarray(value)
    datatype = next(name for name, code in NUMPY.items() if array.dtype == code)
    return {"name": name, "datatype": datatype, "shape": list(array.shape)}, array.tobytes()


def infer(server: Server, model: str, outputs: tuple[str, ...] = (), endpoint: str = "", **inputs: object):
    """One binary request; outputs by name, or the answer that is none."""
    tensors = [described(name, value) for name, value in inputs.items()]
    parameters = {"binary_data_output": True, **({"endpoint": endpoint} if endpoint else {})}
    head = {
        "parameters": parameters,
        "inputs": [{**spec, "parameters": {"binary_data_size": len(raw)}} for spec, raw in tensors],
        **({"outputs": [{"name": name, "parameters": {"binary_data": True}} for name in outputs]} if outputs else {}),
    }
    text = json.dumps(head).encode()
    answer = requests.post(
        server.url(f"/v2/models/{model}/infer"),
        data=text + b"".join(raw for _, raw in tensors),
        headers={"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"},
        timeout=ASK_SECONDS,
    )
    return read(answer) if answer.status_code == 200 else answer


def read(answer: requests.Response) -> dict[str, object]:
    size = int(answer.headers["Inference-Header-Content-Length"])
    found, rest = {}, answer.content[size:]
    for one in json.loads(answer.content[:size])["outputs"]:
        length = one["parameters"]["binary_data_size"]
        raw, rest = rest[:length], rest[length:]
        if one["datatype"] == "BYTES":
            texts = []
            while raw:
                (count,) = struct.unpack_from("<I", raw)
                texts.append(raw[4 : 4 + count].decode())
                raw = raw[4 + count :]
            found[one["name"]] = texts
        else:
            found[one["name"]] = np.frombuffer(raw, NUMPY[one["datatype"]]).reshape(one["shape"])
    assert not rest
    return found


def test_the_metadata_is_what_the_definition_declares(served):
    about = requests.get(served.url("/v2/models/double"), timeout=ASK_SECONDS).json()
    assert about["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
    assert about["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [-1, -1]},
        {"name": "rows", "datatype": "INT64", "shape": [-1]},
    ]
    about = requests.get(served.url("/v2/models/shout"), timeout=ASK_SECONDS).json()
    assert [(one["name"], one["datatype"], one["shape"]) for one in about["inputs"]] == [
        ("text", "BYTES", [-1]),
        ("times", "INT64", [-1]),
    ]


def test_requests_that_fit_share_a_call_and_others_meet_elsewhere(served):
    """Two calls of four rows, or nobody would ever be answered."""
    shapes = [(2, 3), (2, 2), (1, 3), (2, 2), (1, 3)]
    inputs = [np.full(shape, at, "<f4") for at, shape in enumerate(shapes)]
    answers = together([lambda x=x: infer(served, "double", x=x) for x in inputs])
    for x, answer in zip(inputs, answers):
        assert answer["y"].tolist() == (2 * x).tolist()
        assert answer["rows"].tolist() == [4] * len(x)


def test_more_rows_than_a_batch_has_are_split_and_joined_again(served):
    x = np.arange(18, dtype="<f4").reshape(9, 2)
    answer = infer(served, "double", ("rows", "y"), x=x)
    assert list(answer) == ["rows", "y"]
    assert (answer["y"] == 2 * x).all() and answer["rows"].tolist() == [4, 4, 4, 4, 4, 4, 4, 4, 1]


def test_texts_are_elements_and_one_that_is_wrong_is_told(served):
    assert infer(served, "shout", text=["a", "é", "tea"], times=np.array([1, 2, 3])) == {
        "output": ["A", "ÉÉ", "TEATEATEA"]
    }
    tensor = {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}
    answer = requests.post(served.url("/v2/models/shout/infer"), json={"inputs": [tensor]}, timeout=ASK_SECONDS)
    (output,) = answer.json()["outputs"]
    assert (output["name"], output["datatype"], output["data"]) == ("output", "BYTES", ["A", "B"])
    wrong = infer(served, "shout", text=["a", ""])
    assert wrong.status_code == 400 and "say something" in wrong.text


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"x": np.ones((1, 2), "<i8")}, 'input "x" is FP32 of shape [n, any], and INT64 of shape [1, 2] came'),
        ({"x": np.ones(2, "<f4")}, "and FP32 of shape [2] came"),
        ({"z": np.ones((1, 2), "<f4")}, 'has no input "z"'),
        ({}, 'needs input "x"'),
    ],
)
def test_what_does_not_fit_is_rejected_before_it_waits(served, inputs, sentence):
    answer = infer(served, "double", **inputs)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith('Model "double"') and sentence in answer.json()["error"]


def test_a_model_without_a_batch_dimension_takes_whole_requests(served):
    image = np.arange(9, dtype="<i4").reshape(3, 3)
    assert infer(served, "crop", image=image, size=np.array([2]))["output"].tolist() == [[0, 1], [3, 4]]


def test_a_class_answers_with_its_first_endpoint_and_by_name(served):
    orders = [json.dumps({"count": count}) for count in (1, 2)]
    assert infer(served, "Shop", order=orders)["output"].tolist() == [2.5, 5.0]
    image = np.ones((8, 3, 224, 224), "<f4")
    assert infer(served, "Shop", endpoint="mean", image=image)["output"].tolist() == [1.0] * 8


def test_the_same_over_grpc(served):
    with grpc.InferenceServerClient(address(served, "inference")) as client:
        about = client.get_model_metadata("double")
        assert [(one.name, one.datatype, list(one.shape)) for one in about.outputs] == [
            ("y", "FP32", [-1, -1]),
            ("rows", "INT64", [-1]),
        ]
        x = np.arange(8, dtype=np.float32).reshape(4, 2)
        answer = client.infer("double", [given("x", x)], outputs=[grpc.InferRequestedOutput("y")])
        assert (answer.as_numpy("y") == 2 * x).all() and answer.as_numpy("rows") is None
        words = np.array([b"a", "é".encode()], dtype=np.object_)
        assert client.infer("shout", [given("text", words)]).as_numpy("output").tolist() == [b"A", "É".encode()]
        image = np.ones((1, 3, 224, 224), np.float32)
        answer = client.infer("Shop", [given("image", image)], parameters={"endpoint": "mean"})
        assert answer.as_numpy("output").tolist() == [1.0]
        with pytest.raises(InferenceServerException, match=r"has no input .z"):
            client.infer("double", [given("z", x)])


def given(name: str, value: np.ndarray) -> grpc.InferInput:
    datatype = {"float32": "FP32", "object": "BYTES"}[value.dtype.name]
    made = grpc.InferInput(name, list(value.shape), datatype)
    made.set_data_from_numpy(value)
    return made
