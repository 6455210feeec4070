"""How a batch fails, and how a worker ends."""

from __future__ import annotations

import struct

import pytest
import wire

import jitney
from jitney.testing import load
from jitney.worker.protocol import Malformed, ProtocolError

FAILING = """
    from ts.utils.util import PredictionException
    from ts.service import PredictionException as Same
    assert Same is PredictionException

    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError("even this fails")

    def handle(data, context):
        what = data[0]["body"].decode() if data else ""
        if what == "list":
            return {"not": "a list"}
        if what == "none":
            return None
        if what == "tuple":
            return tuple("x" for _ in data)
        if what == "short":
            return []
        if what == "long":
            return ["x"] * (len(data) + 1)
        if what:
            raise eval(what)
        return ["ok" for _ in data or ()]
"""


@pytest.mark.parametrize(
    "what, cause, status, message",
    [
        ("ValueError('exam failure')", "raised", None, "Prediction failed"),
        ("Unprintable()", "raised", None, "Prediction failed"),
        ("MemoryError()", "memory", None, "Out of resources"),
        ("RuntimeError('CUDA out of memory (pretended)')", "memory", None, "Out of resources"),
        ("ValueError('a CUDA thing')", "memory", None, "Out of resources"),
        ("PredictionException('strange weather', 599)", "prediction", 599, "strange weather"),
        ("PredictionException('default code')", "prediction", 500, "default code"),
        ("PredictionException('CUDA is my word', 400)", "prediction", 400, "CUDA is my word"),
        ("PredictionException('odd', 'abc')", "prediction", 500, "odd"),
        ("list", "not-a-list", None, "Invalid model predict output"),
        ("none", "not-a-list", None, "Invalid model predict output"),
        ("tuple", "not-a-list", None, "Invalid model predict output"),
        ("short", "wrong-length", None, "number of batch response mismatched"),
        ("long", "wrong-length", None, "number of batch response mismatched"),
    ],
)
def test_a_batch_fails_with_its_cause_and_the_worker_lives_on(worker, what, cause, status, message):
    one = worker(FAILING)
    failure = one.ask(wire.bodies(what.encode(), b"neighbour"), 41)
    assert failure == {"cause": cause, "status": status, "message": message}
    assert one.ask(wire.bodies(b""), 42)[0]["body"] == b"ok"


def test_the_traceback_goes_to_stdout(worker, capsys):
    worker(FAILING).ask(wire.bodies(b"ValueError('exam failure')"))
    out = capsys.readouterr().out
    assert "Traceback (most recent call last)" in out and "\nValueError: exam failure\n" in out


@pytest.mark.parametrize("what", ["SystemExit(3)", "KeyboardInterrupt()"])
def test_exits_are_not_answered_but_end_the_worker(worker, what):
    one = worker(FAILING)
    one.send(wire.batch(wire.bodies(what.encode())))
    assert one.ended()
    assert type(one.end()).__name__ == what.partition("(")[0]


def test_stop_ends_the_worker_with_status_0(worker):
    one = worker(FAILING)
    one.send(wire.frame(wire.STOP))
    assert one.ended() and one.end() == 0


def test_stop_instead_of_load_ends_the_worker_with_status_0(raw_worker):
    one = raw_worker()
    one.send(wire.frame(wire.STOP))
    one.read_control(wire.HELLO)
    assert one.ended() and one.end() == 0


def test_a_hung_up_server_ends_the_worker_with_status_0(worker, raw_worker):
    assert worker(FAILING).end() == 0
    assert raw_worker().end() == 0


def test_a_server_that_exits_inside_a_frame_ends_the_worker_with_status_0(worker):
    one = worker(FAILING)
    one.send(wire.batch(wire.bodies(b"x"))[:-1])
    assert one.end() == 0


def test_batches_sent_ahead_are_answered_in_order(worker):
    one = worker("""
        def handle(data, context):
            return [row["body"] for row in data or ()]
    """)
    one.send(b"".join(wire.batch(wire.bodies(b"%d" % i), i) for i in range(20)))
    replies = [one.read() for _ in range(20)]
    assert [(i, wire.decode_reply(payload, n)[0]["body"]) for _, n, i, payload in replies] == [
        (i, b"%d" % i) for i in range(20)
    ]


def test_an_empty_batch_has_an_empty_reply(worker):
    one = worker("""
        def handle(data, context):
            return [] if data == [] else None
    """)
    assert one.ask([]) == []


@pytest.mark.parametrize(
    "data",
    [
        wire.frame(wire.LOAD, b"{}"),
        wire.frame(wire.CHUNK),
        wire.frame(wire.TIMES),
        wire.frame(99),
        wire.frame(wire.BATCH, b"", 1),
        wire.frame(wire.BATCH, flags=1),
    ],
)
def test_a_broken_protocol_ends_the_worker(worker, data):
    one = worker(FAILING)
    one.send(data)
    assert one.ended()
    assert isinstance(one.end(), ProtocolError)


def test_broken_headers_are_the_protocols_fault_and_not_the_handlers(worker):
    one = worker("""
        def handle(data, context):
            return [str(context.get_request_header(i, "a")) for i, _ in enumerate(data or ())]
    """)
    meta = struct.pack("<BBHIQ", 0, 0, 0, 7, 0) + struct.pack("<HI", 1, 9) + b"x"
    one.send(wire.batch([(meta, b"")]))
    assert one.ended()
    assert isinstance(one.end(), Malformed)


def test_a_definition_without_memory_answers_507_and_says_what_to_change():
    @jitney.endpoint
    def eat(size: int) -> int:
        raise MemoryError

    with load(eat) as model:
        answer = model.post({"size": 1})
    assert answer.status == 507 and b"raise its memory_limit" in answer.body
