"""Definitions that are called in tensors: no copies, joined and split along the batch dimension, one answer each."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from typing import Annotated

import numpy as np
import pytest
import wire

import jitney
from jitney.definition.definition import define
from jitney.packing.pack import api
from jitney.values.tensor import RawTensor
from jitney.worker.batch import BatchDecoder
from jitney.worker.context import WorkerContext
from jitney.worker.defined import DefinedModel
from jitney.worker.protocol import ReceivedItems

try:
    import pandas
except ImportError:
    pandas = None
try:
    import torch
except ImportError:
    torch = None

F32 = np.dtype("<f4")


def tensor(name: str, value: object, datatype: str = "") -> tuple[str, str, tuple[int, ...], bytes]:
    """A tensor as the wire has it."""
    if datatype == "BYTES" or (isinstance(value, list) and isinstance(value[0], (str, bytes))):
        raw = [one.encode() if isinstance(one, str) else one for one in value]
        return name, "BYTES", (len(raw),), b"".join(struct.pack("<I", len(one)) + one for one in raw)
    array = np.asarray(value)
    datatype = (
        datatype
        or {"f4": "FP32", "f8": "FP64", "i8": "INT64", "i4": "INT32", "b1": "BOOL", "f2": "FP16"}[array.dtype.str[1:]]
    )
    return name, datatype, array.shape, array.tobytes()


class Served:
    """A definition behind the worker's own reading and writing of items."""

    def __init__(self, target: object) -> None:
        self.model = DefinedModel(define(target))
        self.context = WorkerContext("m", "/", {}, 1, None, "")

    def ask(self, *items: tuple[bytes, bytes], large: bool = False) -> list[dict]:
        """The answers to a batch."""
        payload = wire.table(list(items))
        given: object = payload
        if large:
            given = ReceivedItems(b"", [meta for meta, _ in items], [bytearray(body) for _, body in items])
        rows, metas = BatchDecoder().decode(given, len(items))
        self.context.bind_batch(metas)
        answers = wire.decode_reply(b"".join(map(bytes, self.model.handle(rows, self.context))), len(items))
        return [read(answer) for answer in answers]

    def infer(self, *inputs: tuple, outputs: tuple[str, ...] = ()) -> dict:
        """The answer to one request."""
        (answer,) = self.ask(wire.tensors(inputs, outputs))
        return answer


def read(answer: dict) -> dict:
    """Outputs by name as arrays, or the failure."""
    if answer["outcome"] == 1:
        return {"status": answer["status"], "error": answer["body"].decode()}
    if "tensors" not in answer:
        return answer
    return {one["name"]: RawTensor(one["datatype"], one["shape"], one["value"]) for one in answer["tensors"]}


def plain(answer: dict) -> dict:
    """The same as datatype and nested lists."""
    return {name: (one.datatype, one.nested()) for name, one in answer.items()} if "error" not in answer else answer


def test_an_array_shares_the_memory_of_its_frame_and_a_joined_one_has_all_rows():
    seen: list[np.ndarray] = []

    @jitney.batch(max_batch_size=16, outputs={"y": jitney.Tensor("FP32", [-1, 3])})
    def double(x: Annotated[np.ndarray, jitney.Tensor("FP32", [-1, 3])]) -> np.ndarray:
        seen.append(x)
        x *= 2  # Arrays are the model's own.
        return x

    served = Served(double)
    body = bytearray(np.arange(6, dtype=F32).tobytes())
    meta, _ = wire.tensors([("x", "FP32", (2, 3), bytes(body))])
    rows, metas = BatchDecoder().decode(ReceivedItems(b"", [meta], [body]), 1)
    served.context.bind_batch(metas)
    parts = served.model.handle(rows, served.context)
    frame = np.frombuffer(body, "u1")
    assert np.shares_memory(seen[0], frame), "the function reads the frame's own memory"
    assert np.shares_memory(np.frombuffer(parts[-1], "u1"), frame), "and what it returns is sent from there"
    assert frame.view(F32).tolist() == [0, 2, 4, 6, 8, 10]
    ones, twos = np.ones((1, 3), F32), np.full((2, 3), 2, F32)
    answers = served.ask(wire.tensors([tensor("x", ones)]), wire.tensors([tensor("x", twos)]))
    assert seen[1].shape == (3, 3), "one call for both"
    assert [plain(one)["y"] for one in answers] == [("FP32", (ones * 2).tolist()), ("FP32", (twos * 2).tolist())]


def test_arrays_that_do_not_fit_together_run_apart_and_many_rows_in_several_calls():
    sizes: list[tuple[int, ...]] = []

    @jitney.batch(max_batch_size=4)
    def total(x: np.ndarray) -> np.ndarray:
        sizes.append(x.shape)
        return x.sum(axis=1)

    served = Served(total)
    inputs = [np.ones((1, 2), F32), np.ones((2, 3), F32), np.ones((1, 2), "<f8"), np.ones((2, 2), F32)]
    answers = served.ask(*[wire.tensors([tensor("x", one)]) for one in inputs])
    assert sorted(sizes) == [(1, 2), (2, 3), (3, 2)]
    assert [plain(one)["output"] for one in answers] == [
        ("FP32", [2.0]), ("FP32", [3.0, 3.0]), ("FP64", [2.0]), ("FP32", [2.0, 2.0]),
    ]  # fmt: skip
    sizes.clear()
    assert plain(served.infer(tensor("x", np.ones((9, 1), F32))))["output"] == ("FP32", [1.0] * 9)
    assert [size[0] for size in sizes] == [4, 4, 1]


def test_lists_take_one_element_per_item_and_share_calls_with_other_requests():
    calls: list[tuple] = []

    @jitney.batch(max_batch_size=8)
    def price(item: list[str], count: list[int] = 1) -> list[float]:
        calls.append((item, count))
        return [len(one) * many if one else jitney.BadInput("no item") for one, many in zip(item, count)]

    served = Served(price)
    json_item = wire.item([("body", "application/json", b'{"item": "sand"}')])
    first = wire.tensors([tensor("item", ["tea", "milk"]), tensor("count", np.array([2, 3]))])
    bad = wire.tensors([tensor("item", ["tea", ""])])
    answers = served.ask(first, json_item, wire.tensors([tensor("item", ["é"])]), bad)
    assert calls == [(["tea", "milk", "sand", "é", "tea", ""], [2, 3, 1, 1, 1, 1])]
    assert plain(answers[0]) == {"output": ("FP64", [6.0, 12.0])} or plain(answers[0]) == {"output": ("INT64", [6, 12])}
    assert answers[1]["body"] == b"4"
    assert plain(answers[2])["output"][1] == [1]
    assert answers[3] == {"status": 400, "error": "no item"}
    unequal = served.infer(tensor("item", ["a", "b"]), tensor("count", np.array([1])))
    assert unequal == {"status": 400, "error": "the inputs differ in how many items they bring: 'item' 2, 'count' 1"}
    wrong = served.infer(tensor("item", ["a"]), tensor("count", ["many"]))
    assert wrong["status"] == 400 and "'count'" in wrong["error"]
    assert served.infer(tensor("itm", ["a"]))["error"] == "there is no input 'itm'; call takes 'item', 'count'"
    assert served.infer(tensor("count", np.array([1])))["error"] == "parameter 'item' is missing"


def test_values_become_tensors_of_their_own_kind():
    def answers(value: object, **options: object) -> dict:
        @jitney.batch(**options)
        def model(x: list[int]) -> list:
            return [value] * len(x)

        return plain(Served(model).infer(tensor("x", np.array([1, 2]))))

    assert answers(True) == {"output": ("BOOL", [True, True])}
    assert answers("né") == {"output": ("BYTES", ["né".encode()] * 2)}
    assert answers([1.5, 2]) == {"output": ("FP64", [[1.5, 2.0]] * 2)}
    assert answers({"label": "a", "p": 0.5}) == {"output": ("BYTES", [b'{"label":"a","p":0.5}'] * 2)}
    assert answers(None) == {"output": ("BYTES", [b"null"] * 2)}
    assert answers({"a": np.float32([1, 2]), "b": 3}) == {"a": ("FP32", [[1.0, 2.0]] * 2), "b": ("INT64", [3, 3])}
    declared = {"a": jitney.Tensor("FP32", [-1]), "b": jitney.Tensor("INT8", [-1])}
    assert answers({"a": 1, "b": 3, "c": None}, outputs=declared) == {"a": ("FP32", [1.0, 1.0]), "b": ("INT8", [3, 3])}
    assert answers(1.5, outputs={"y": jitney.Tensor("BF16", [-1])}) == {"y": ("BF16", [1.5, 1.5])}
    assert answers(np.float64(3), outputs={"y": jitney.Tensor("FP16", [-1])}) == {"y": ("FP16", [3.0, 3.0])}
    assert answers({"a": 1}, outputs=declared)["status"] == 500
    assert "has no 'b'" in answers({"a": 1}, outputs=declared)["error"]
    assert "complex64 has no datatype" in answers(np.complex64(1))["error"]
    assert answers(300, outputs={"y": jitney.Tensor("INT8", [-1])})["status"] == 500


def test_answers_that_differ_in_length_are_an_error_that_says_so():
    @jitney.batch
    def ragged(x: list[int]) -> list[list[float]]:
        return [[0.5] * one for one in x]

    answer = Served(ragged).infer(tensor("x", np.array([1, 2])))
    assert answer == {"status": 500, "error": "the output 'output' is no tensor: its rows differ in length: 1 and 2"}


def test_outputs_that_are_asked_for_are_answered_and_others_are_unknown():
    @jitney.batch
    def both(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"plus": x + 1, "minus": x - 1}

    served = Served(both)
    x = tensor("x", np.float32([[1], [2]]))
    assert list(served.infer(x)) == ["plus", "minus"]
    assert plain(served.infer(x, outputs=("minus",))) == {"minus": ("FP32", [[0.0], [1.0]])}
    assert served.infer(x, outputs=("times",)) == {
        "status": 400, "error": "there is no output 'times'; there are: plus, minus",
    }  # fmt: skip


def test_every_datatype_arrives_as_it_was_sent():
    seen = {}

    @jitney.endpoint
    def model(x: np.ndarray) -> np.ndarray:
        seen["x"] = x
        return x

    served = Served(model)
    for code, datatype in {
        "?": "BOOL", "u1": "UINT8", "<u2": "UINT16", "<u4": "UINT32", "<u8": "UINT64", "i1": "INT8", "<i2": "INT16",
        "<i4": "INT32", "<i8": "INT64", "<f2": "FP16", "<f4": "FP32", "<f8": "FP64",
    }.items():  # fmt: skip
        value = np.array([[0, 1], [1, 0]], code)
        answer = served.infer(("x", datatype, (2, 2), value.tobytes()))["output"]
        assert seen["x"].dtype == np.dtype(code) and (answer.datatype, answer.nested()) == (datatype, value.tolist())
    halves = struct.pack("<2H", 0x3F80, 0xC000)
    assert plain(served.infer(("x", "BF16", (2,), halves)))["output"] == ("FP32", [1.0, -2.0])
    texts = plain(served.infer(tensor("x", [b"\xff", b"", b"tea"])))
    assert texts["output"] == ("BYTES", [b"\xff", b"", b"tea"]) and seen["x"].dtype == object
    empty = served.infer(("x", "FP32", (0, 3), b""))["output"]
    assert (empty.shape, empty.data) == ((0, 3), b"")


def test_a_declared_datatype_is_what_the_function_gets_and_an_unaligned_one_is_moved():
    seen = []

    @jitney.batch(inputs={"x": jitney.Tensor("FP32", [-1]), "name": jitney.Tensor("BYTES", [-1])})
    def model(name, x):
        seen.append(x)
        return x

    served = Served(model)
    answer = served.infer(tensor("name", ["a", "abc"]), tensor("x", np.array([1.5, 2.5])))
    assert plain(answer)["output"] == ("FP32", [1.5, 2.5]) and seen[0].dtype == F32
    served.infer(tensor("name", ["a", "b"]), tensor("x", np.float32([1, 2])))
    assert seen[1].flags.aligned


def test_functions_without_a_batch_dimension_take_whole_requests():
    shapes = []

    @jitney.endpoint
    def crop(image: np.ndarray, size: int = 1, tags: list[str] | None = None) -> np.ndarray:
        shapes.append((image.shape, tags))
        return image[:size, :size]

    served = Served(crop)
    image = np.arange(9, dtype="<i4").reshape(3, 3)
    requests = [wire.tensors([tensor("image", image), tensor("size", np.array([2])), tensor("tags", ["a", "b"])])] * 2
    answers = served.ask(*requests)
    assert [plain(one)["output"] for one in answers] == [("INT32", [[0, 1], [3, 4]])] * 2
    assert shapes == [((3, 3), ["a", "b"])] * 2
    wrong = served.infer(tensor("image", image), tensor("size", np.array([1, 2])))
    assert wrong == {"status": 400, "error": "input 'size' is one value in a call, not INT64 of shape [2]"}


def test_functions_of_single_values_are_called_once_per_element():
    def shout(text: str, times: int = 1) -> str:
        return text.upper() * times

    served = Served(shout)
    answer = plain(served.infer(tensor("text", ["a", "b"]), tensor("times", np.array([1, 2]))))
    assert answer == {"output": ("BYTES", [b"A", b"BB"])}
    lone = served.infer(("text", "BYTES", (), struct.pack("<I", 1) + b"a"))["output"]
    assert (lone.shape, lone.nested()) == ((1,), [b"A"])


def test_an_exception_is_its_requests_own_when_it_is_alone_and_the_batchs_otherwise():
    @jitney.batch
    def model(x: list[int]) -> list[int]:
        raise KeyError("boom")

    served = Served(model)
    alone = served.infer(tensor("x", np.array([1, 2])))
    assert alone == {"status": 500, "error": "KeyError: 'boom'"}
    with pytest.raises(KeyError):
        served.ask(wire.tensors([tensor("x", np.array([1]))]), wire.tensors([tensor("x", np.array([2]))]))


def test_streams_and_requests_are_answered_as_a_whole():
    @jitney.batch
    def spell(word: list[str], request: list[jitney.Request]):
        for one in request:
            one.response_headers["x-spelt"] = "yes"
        for at in range(2):
            yield [one[at : at + 1] or jitney.END for one in word]

    (answer,) = wire_answers(Served(spell), wire.tensors([tensor("word", ["ab", "c"])]))
    assert answer["headers"] == [["x-spelt", "yes"]]
    assert plain(read(answer)) == {"output": ("BYTES", [b"ab", b"c"])}


def wire_answers(served: Served, *items: tuple[bytes, bytes]) -> list[dict]:
    rows, metas = BatchDecoder().decode(wire.table(list(items)), len(items))
    served.context.bind_batch(metas)
    return wire.decode_reply(b"".join(map(bytes, served.model.handle(rows, served.context))), len(items))


def test_a_request_without_items_is_answered_without_a_call():
    @jitney.batch
    def model(x: list[str]) -> list[float]:
        raise AssertionError("nothing to do")

    answer = Served(model).infer(("x", "BYTES", (0,), b""))["output"]
    assert (answer.datatype, answer.shape) == ("FP64", (0,))


def test_items_of_one_request_are_measured_one_by_one():
    sizes = []

    @jitney.batch(max_batch_size=10, cost="len")
    def model(text: list[str]) -> list[int]:
        sizes.append([len(one) for one in text])
        return sizes[-1]

    assert plain(Served(model).infer(tensor("text", ["aaaa"] * 5)))["output"] == ("INT64", [4] * 5)
    assert sizes == [[4, 4], [4, 4], [4]]


@pytest.mark.skipif(pandas is None, reason="needs pandas")
def test_frames_take_columns_by_name():
    seen = []

    @jitney.batch
    def model(frame: pandas.DataFrame) -> pandas.DataFrame:
        seen.append(frame)
        return frame.assign(old=frame["age"] > 50)

    answer = plain(Served(model).infer(tensor("age", np.array([20, 60])), tensor("name", ["a", "b"])))
    assert seen[0]["name"].tolist() == ["a", "b"]
    assert answer["old"] == ("BOOL", [False, True]) and answer["name"] == ("BYTES", [b"a", b"b"])


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_torch_tensors_share_the_frames_memory_too():
    seen = []

    @jitney.batch
    def model(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x

    served = Served(model)
    assert plain(served.infer(("x", "BF16", (1,), struct.pack("<H", 0x3F80))))["output"] == ("BF16", [1.0])
    assert seen[0].dtype is torch.bfloat16
    assert plain(served.infer(tensor("x", np.float32([[1]]))))["output"] == ("FP32", [[1.0]])


def test_what_is_declared_is_told_to_the_server():
    @jitney.batch(batch_dim=1, max_batch_size=4)
    def model(
        x: Annotated[np.ndarray, jitney.Tensor("FP16", [3, -1])], scale: float = 1.0
    ) -> Annotated[np.ndarray, jitney.Tensor("FP16", [3, -1])]:
        return x * scale

    (told,) = api(define(model))["tensors"].values()
    assert told == {
        "inputs": [
            {"name": "x", "datatype": "FP16", "shape": [3, -1], "required": True, "rows": True, "checked": True},
            {"name": "scale", "datatype": "FP64", "shape": [1], "required": False, "rows": False, "checked": False},
        ],
        "outputs": [{"name": "output", "datatype": "FP16", "shape": [3, -1]}],
        "items": "rows",
        "batch_dim": 1,
        "takes_any": False,
    }


@pytest.mark.parametrize(
    ("declare", "sentence"),
    [
        (lambda: jitney.Tensor("float32", [-1]), "there is no datatype 'float32'"),
        (lambda: jitney.Tensor("FP32", [-2]), "each -1 or more"),
        (lambda: jitney.Tensor("FP32", 3), "a shape is a list of sizes"),
        (lambda: jitney.batch(inputs={"x": [-1]})(lambda x: x), "inputs is a dictionary such as"),
        (lambda: define(jitney.batch(inputs={"y": jitney.Tensor("FP32", [-1])})(lambda x: x)), "no such parameter"),
        (lambda: define(jitney.batch(inputs={"x": jitney.Tensor("FP32", [3])})(lambda x: x)), "no batch dimension"),
    ],
)
def test_a_wrong_declaration_is_an_error_where_it_is_written(declare, sentence):
    with pytest.raises(jitney.DefinitionError, match=sentence):
        declare()


def test_no_request_imports_numpy():
    program = """
import struct, sys
import wire
import jitney
from jitney.definition.definition import define
from jitney.worker.batch import BatchDecoder
from jitney.worker.context import WorkerContext
from jitney.worker.defined import DefinedModel

@jitney.batch
def model(x: list[float], name: list[str]) -> list[list[float]]:
    return [[one, len(two)] for one, two in zip(x, name)]

item = wire.tensors([("x", "FP32", (1,), struct.pack("<f", 0.5)), ("name", "BYTES", (1,), struct.pack("<I", 1) + b"a")])
rows, metas = BatchDecoder().decode(wire.table([item]), 1)
context = WorkerContext("m", "/", {}, 1, None, "")
context.bind_batch(metas)
(answer,) = wire.decode_reply(b"".join(map(bytes, DefinedModel(define(model)).handle(rows, context))), 1)
(tensor,) = answer["tensors"]
assert (tensor["datatype"], tensor["shape"], tensor["value"]) == ("FP64", [1, 2], struct.pack("<2d", 0.5, 1)), tensor
assert "numpy" not in sys.modules
"""
    path = {"PYTHONPATH": f"{wire.PYTHON_DIR}:{wire.PYTHON_DIR}/tests"}
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **path})
