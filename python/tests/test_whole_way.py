"""Made-up batches that go the whole way of a request before LOADED, seen through the socket; without torch."""

from __future__ import annotations

import json
import threading

import pytest
import wire
from wire import bodies

from jitney.torchserve.bodies import reader_for
from jitney.worker import whole_way
from jitney.worker.context import WorkerContext
from jitney.worker.loader import LoadedModel

SAMPLED = """
import threading
from jitney.gpu.report import WarmUpReport

class Sampled:
    slots = {slots}

    def initialize(self, context):
        self.seen, self.metrics = [], context.metrics

    def warm_up(self, progress):
        return WarmUpReport(samples=[[{{"body": b"made up"}}] * size for size in (2, 1)])

    def batches_at_a_time(self):
        return self.slots

    def see(self, step, size):
        self.seen.append((step, size, threading.current_thread().name))

    def begin(self, data, context):
        self.see("begin", len(data))
        self.metrics.add_counter("Begun", len(data))
        {broken}
        return [bytes(row.pop("body")).decode() + context.get_request_id(at) for at, row in enumerate(data)]

    def finish(self, texts, context):
        self.see("finish", len(texts))
        return [[text, self.seen] for text in texts]

    def handle(self, data, context):
        return self.finish(self.begin(data, context), context)
"""


def sampled(slots: int, broken: str = "") -> str:
    return SAMPLED.format(slots=slots, broken=broken)


def answer(one, *texts: bytes):
    """The answers of one batch, each with what the handler saw until then."""
    return [json.loads(item["body"]) for item in one.ask(bodies(*texts))]


def test_samples_go_through_every_thread_before_the_worker_is_loaded(worker):
    one = worker(sampled(3))
    threads = set(threading.enumerate())
    ((text, seen),) = answer(one, b"a")
    assert text == "ar0" and threads == set(threading.enumerate())
    (main,) = {name for step, _, name in seen[:2]}
    alone = [("begin", 2), ("finish", 2), ("begin", 1), ("finish", 1)]
    assert [tuple(it) for it in seen[:4]] == [(step, size, main) for step, size in alone]
    at_a_time = [tuple(it) for it in seen[4:-2]]
    begun = [("begin", size, "begin") for size in (2, 2, 2, 1, 1, 1)]
    assert [it for it in at_a_time if it[0] == "begin"] == begun
    assert [it for it in at_a_time if it[0] == "finish"] == [("finish", size, main) for _, size, _ in begun]


def test_a_worker_that_takes_one_batch_at_a_time_runs_them_too(worker):
    ((_, seen),) = answer(worker(sampled(1)), b"a")
    assert [(step, size) for step, size, _ in seen] == [
        ("begin", 2), ("finish", 2), ("begin", 1), ("finish", 1), ("begin", 1), ("finish", 1)
    ]  # fmt: skip


def test_metrics_count_requests_only(worker, capsys):
    answer(worker(sampled(2)), b"a", b"b")
    assert capsys.readouterr().out.count("[METRICS]Begun") == 1


@pytest.mark.parametrize("slots", [1, 2])
def test_a_sample_that_fails_is_one_line_of_the_log(raw_worker, model, slots, caplog, capsys):
    broken = 'if data[0]["body"] == b"made up": raise ValueError("no such picture")'
    one = raw_worker()
    with caplog.at_level("INFO"):
        one.load(model(sampled(slots, broken)), "handler.py")
        assert "notes" not in one.read_control(wire.LOADED)
    (line,) = [it for it in caplog.messages if "no such picture" in it]
    assert line.startswith("A made-up batch of 2 failed") and "Traceback" not in capsys.readouterr().out
    assert [text for text, _ in answer(one, b"a", b"b")] == ["ar0", "br1"]


def test_what_would_take_too_long_is_left_out(monkeypatch):
    clock = iter(range(0, 1000))
    monkeypatch.setattr(whole_way, "now", lambda: next(clock) / 2)  # Made, begun, ended: a second for every batch.
    context = WorkerContext("m", "", {}, 1, None, "", True, None, {})
    samples = [[{}] * size for size in (1, 1, 64)]
    run = []
    model = LoadedModel(lambda rows, context: rows, context, reader_for, samples=samples)
    whole_way.go_the_whole_way(model, lambda batches: run.append([held.count for held in batches]), 4)
    assert run == [[1], [1]]
