"""Frames and values of handles: the shared vectors of protocol/handles.json, both ways."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import enum
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jitney.call import errors
from jitney.handle import frames
from jitney.handle.connections import Connection
from jitney.handle.streams import AsyncCall
from jitney.wire import calls, values
from jitney.wire.address import Address
from jitney.wire.calls import PRIORITIES, CallOptions

VECTORS = json.loads((Path(__file__).parents[2] / "protocol" / "handles.json").read_text(encoding="utf-8"))


def named(which: str) -> Any:
    return pytest.mark.parametrize("vector", VECTORS[which], ids=lambda vector: vector["name"])


@named("calls")
def test_a_call_is_written_as_the_vectors_say(vector):
    names = [vector[name] for name in ("model", "version", "endpoint", "kind")]
    timeout, priority = vector["timeout_ms"] / 1000 or None, PRIORITIES[vector["bulk"]]
    own = tuple(vector["headers"].items()) or None
    options = CallOptions(timeout, priority, vector["tenant"] or None, vector["cost"] or None, own)
    head = frames.call_head(*names, options)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        connection = Connection(Address("localhost", 0), loop)
        connection._numbers = vector["id"] - 1
        connection.send(AsyncCall(connection), head, bytes.fromhex(vector["body_hex"]))
        assert b"".join(connection._unsent).hex() == vector["hex"]


@named("cancels")
def test_a_cancel_is_written_as_the_vectors_say(vector):
    assert frames.cancel_frame(vector["id"]).hex() == vector["hex"]


@named("words")
def test_frames_of_the_server_are_read_as_in_the_vectors(vector):
    ((kind, number, payload),) = frames.FrameBuffer().feed(bytes.fromhex(vector["hex"]))
    assert (kind, number) == (vector["kind"], vector["id"])
    if kind in (frames.ANSWER, frames.FIRST):
        value, head, content_type = frames.read_answer(payload)
        queue, compute, items, most, position, attempt, reason = vector["timing"]
        assert frames.timing_of(head) == (
            queue / 1e6,
            compute / 1e6,
            items,
            most,
            position,
            attempt,
            frames.REASONS[reason],
        )
        assert content_type == vector["content_type"]
        assert value == frames.read_body(bytes.fromhex(vector["body_hex"]), content_type)
    elif kind == frames.ERROR:
        error = frames.read_error(payload)
        said = (str(error), error.status, error.kind, error.retry_after)
        assert said == (vector["message"], vector["status"], vector["type"], vector["retry_after_ms"] / 1000 or None)
    else:
        assert bytes(payload).hex() == vector.get("body_hex", "")


def test_frames_are_found_wherever_the_stream_is_cut():
    data = b"".join(bytes.fromhex(vector["hex"]) for vector in VECTORS["words"])
    whole = [(kind, number, bytes(payload)) for kind, number, payload in frames.FrameBuffer().feed(data)]
    for step in (1, 3, 17, 40):
        buffer = frames.FrameBuffer()
        pieces = [data[at : at + step] for at in range(0, len(data), step)]
        found = [(kind, number, bytes(payload)) for piece in pieces for kind, number, payload in buffer.feed(piece)]
        assert found == whole


@named("values")
def test_values_are_written_and_read_as_the_vectors_say(vector):
    value = ast.literal_eval(vector["python"])
    assert values.encode(value).hex() == vector["hex"]
    read = values.decode(bytes.fromhex(vector["hex"]))
    assert (read, type(read)) == (value, type(value))


@named("bad_values")
def test_broken_values_are_rejected(vector):
    with pytest.raises(values.ValueFormatError):
        values.decode(bytes.fromhex(vector["hex"]))


def test_arrays_keep_their_type_and_shape():
    numpy = pytest.importorskip("numpy")
    for array in (numpy.arange(6, dtype="<f4").reshape(2, 3), numpy.array(["a", "bc"]), numpy.zeros((0, 4), bool)):
        read = values.decode(values.encode({"x": [array.T]}))["x"][0]
        assert (read.dtype, read.shape) == (array.dtype, array.T.shape)
        assert (read == array.T).all()
        assert read.flags.writeable
    with pytest.raises(values.ValueFormatError, match="send a list"):
        values.encode(numpy.array([object()]))
    assert values.decode(values.encode(numpy.float32(2))) == 2.0


def test_frames_of_pandas_keep_their_columns_and_index():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": [1, 2], "word": ["a", "b"]}, index=["x", "y"])
    pandas.testing.assert_frame_equal(values.decode(values.encode(frame)), frame)
    series = pandas.Series([1.5, 2.5], name="s")
    pandas.testing.assert_series_equal(values.decode(values.encode(series)), series)


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    color: Color


def test_other_types_travel_as_what_they_hold_or_say_that_they_cannot():
    assert values.decode(values.encode(Point(1, Color.RED))) == {"x": 1, "color": "red"}
    with pytest.raises(values.ValueFormatError, match="cannot be sent through a handle"):
        values.encode(object())


@pytest.mark.parametrize(
    ("positional", "named"), [((), {}), ((1,), {}), ((1, [2]), {"a": 3}), (((1,), {"a": 2}), {}), ((), {"b": None})]
)
def test_arguments_arrive_where_they_were_put(positional, named):
    assert calls.decode_call(calls.encode_call(positional, named)) == (positional, named)


class Picky(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.a = a


def thrown(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return calls.decode_failure(calls.encode_failure(raised, with_traceback=True), 500)


def test_a_traceback_stays_on_the_server_unless_it_may_go_along():
    try:
        raise ValueError("no")
    except ValueError as raised:
        text = calls.encode_failure(raised)
    assert __file__ not in text
    assert "Traceback" not in text
    again = calls.decode_failure(text, 500)
    assert (type(again), str(again), again.__cause__) == (ValueError, "no", None)


def test_an_exception_keeps_its_type_message_and_traceback():
    for error in (
        ValueError("no"),
        KeyError("k"),
        Picky(1, "x"),
        errors.BadInput("bad"),
        errors.Error("e", status=418),
    ):
        again = thrown(error)
        assert (type(again), str(again)) == (type(error), str(error))
        assert "in thrown" in str(again.__cause__)
    assert thrown(Picky(1, "x")).a == 1
    assert thrown(errors.Error("e", status=418)).status == 418


def test_an_exception_of_a_type_that_is_not_loaded_is_a_remote_error():
    text = calls.encode_failure(ValueError("no")).replace('"builtins"', '"antigravity"')
    again = calls.decode_failure(text, 500)
    assert (type(again), again.kind) == (errors.RemoteError, "antigravity.ValueError")
    assert calls.decode_failure("Prediction failed", 500) is None
    assert calls.decode_failure(calls.FAILURE_MARK + "[]", 500) is None


@pytest.mark.parametrize("library", ["numpy", "pandas"])
def test_a_call_makes_no_worker_import_a_library(library):
    loaded = pytest.importorskip(library)
    value = loaded.zeros(3) if library == "numpy" else loaded.DataFrame({"a": ["x"]})
    script = (
        "import sys\nfrom jitney.wire import calls, values\n"
        f"raw = bytes.fromhex({calls.encode_call((value,), {}).hex()!r})\n"
        "try:\n    calls.decode_call(raw)\n"
        "except values.ValueFormatError as error:\n    print(error)\n"
        "print(sorted({'numpy', 'pandas', 'torch'} & sys.modules.keys()))\n"
        "import numpy, pandas\nprint(type(calls.decode_call(raw)[0][0]).__name__)\n"
    )
    pytest.importorskip("pandas")
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    why, imported, name = told.splitlines()
    assert why == f"the value needs {library}, which this model does not import; send plain lists instead"
    assert imported == "[]"
    assert name == type(value).__name__
