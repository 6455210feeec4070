"""Handlers that let their stages overlap, seen through the socket; without torch."""

from __future__ import annotations

import json

import wire
from wire import bodies

STAGED = """
import threading

class Staged:
    slots = 2

    def initialize(self, context):
        self.waiting = threading.Semaphore(0)

    def batches_at_a_time(self):
        return self.slots

    def begin(self, data, context):
        if data[0]["body"] == b"raise early":
            raise ValueError
        self.waiting.release()
        return [bytes(row["body"]) for row in data]

    def finish(self, prepared, context):
        if prepared[0] == b"wait for the next":
            self.waiting.acquire(), self.waiting.acquire()  # For this batch and for the next one.
        if prepared[0] == b"exit":
            raise SystemExit(3)
        if prepared[0] == b"raise late":
            raise ValueError
        return [body + b" " + context.get_request_id(place).encode() for place, body in enumerate(prepared)]

    def handle(self, data, context):
        return self.finish(self.begin(data, context), context)
"""


def read_body(one) -> bytes:
    """The body of the only answer of the next batch."""
    _, (kind, count, _, payload) = one.read_timed()
    assert (kind, count) == (wire.REPLY, 1)
    return wire.decode_reply(payload, 1)[0]["body"]


def test_the_next_batch_is_begun_while_this_one_is_being_finished(worker):
    one = worker(STAGED)
    one.send(wire.batch(bodies(b"wait for the next"), 1) + wire.batch(bodies(b"next"), 2))
    assert [read_body(one), read_body(one)] == [b"wait for the next r0", b"next r0"]


def test_a_worker_says_how_many_batches_it_wants(raw_worker, model):
    one = raw_worker()
    one.load(model(STAGED), "handler.py")
    assert one.read_control(wire.LOADED)["slots"] == 2


def test_a_handler_that_wants_one_batch_is_not_overlapped(raw_worker, model):
    one = raw_worker()
    one.load(model(STAGED.replace("slots = 2", "slots = 1")), "handler.py")
    assert "slots" not in one.read_control(wire.LOADED)
    assert one.ask(bodies(b"a"))[0]["body"] == b"a r0"


def test_failures_of_either_stage_are_of_their_own_batch(worker):
    one = worker(STAGED)
    sent = [b"raise early", b"fine", b"raise late", b"fine"]
    one.send(b"".join(wire.batch(bodies(body), number) for number, body in enumerate(sent)))
    failed, times, fine, failed_late, *_ = [one.read() for _ in range(6)]
    assert [failed[0], times[0], fine[0], failed_late[0]] == [wire.FAILED, wire.TIMES, wire.REPLY, wire.FAILED]
    assert [failed[2], times[2], fine[2], failed_late[2]] == [0, 1, 1, 2]
    assert json.loads(failed[3])["cause"] == "raised"


def test_batches_before_the_stop_are_answered(worker):
    one = worker(STAGED)
    one.send(wire.batch(bodies(b"a"), 1) + wire.batch(bodies(b"b"), 2) + wire.control(wire.STOP))
    assert [one.read_timed()[1][2] for _ in range(2)] == [1, 2]
    assert one.ended()
    assert one.end() == 0


def test_a_handler_that_exits_takes_the_worker_with_it(raw_worker, model):
    one = raw_worker()
    one.load(model(STAGED), "handler.py")
    one.read_control(wire.LOADED)
    one.send(wire.batch(bodies(b"exit"), 1))
    assert one.ended()
    assert isinstance(one.end(), SystemExit)


def test_a_frame_that_is_no_batch_ends_the_connection(raw_worker, model):
    one = raw_worker()
    one.load(model(STAGED), "handler.py")
    one.read_control(wire.LOADED)
    one.send(wire.control(wire.LOADED))
    assert one.ended()
    assert "expected BATCH or STOP" in str(one.end())


def test_processors_are_divided_among_the_workers_of_a_model(raw_worker, model, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setattr("jitney.torchserve.threads.processors", lambda: 8)
    source = """
import os
def handle(data, context):
    return [os.environ["OMP_NUM_THREADS"] + os.environ["OMP_WAIT_POLICY"] for _ in data or []]
"""
    one = raw_worker()
    one.load(model(source), "handler.py", workers=3)
    one.read_control(wire.LOADED)
    assert one.ask(bodies(b""))[0]["body"] == b"2ACTIVE"
