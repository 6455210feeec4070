"""When a worker collects garbage, and what it tells about it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json

import pytest
import wire
from wire import bodies

import jitney
from jitney.worker import garbage
from jitney.worker.batch import BatchDecoder
from jitney.worker.defined import DefinedModel
from jitney.worker.garbage import PYTHON, Collector
from jitney.worker.loader import make_context


class Knot:
    """An object that only the collector can free."""

    alive = 0

    def __init__(self) -> None:
        self.own = self
        Knot.alive += 1

    def __del__(self) -> None:
        Knot.alive -= 1


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def begun():
    """A collector that decides, at a time of the test's own."""
    gc.collect()
    Knot.alive = 0
    clock = Clock()
    collector = Collector(clock)
    collector.begin()
    yield collector, clock
    collector.end()
    gc.collect()


def leave_knots(runs: int) -> None:
    """Leaves so much behind that the collector looks at the younger objects so many times."""
    for _ in range(runs * garbage.STANDARD[0] * garbage.STANDARD[1] // 2):
        Knot()  # And its dictionary.


def full_runs() -> int:
    return gc.get_stats()[2]["collections"]


def test_what_is_there_after_loading_is_frozen_and_no_full_run_comes_by_itself(begun):
    assert gc.get_freeze_count() > 1000
    before, kept = full_runs(), []
    kept.extend([[] for _ in range(300_000)])
    assert full_runs() == before


def test_a_full_run_waits_until_nothing_waits(begun):
    collector, _ = begun
    kept = [[] for _ in range(40_000)]
    before = full_runs()
    collector.after_batch(lambda: True)
    assert full_runs() == before
    collector.after_batch(lambda: False)
    assert full_runs() == before + 1
    collector.after_batch(lambda: False)
    assert full_runs() == before + 1, "nothing has come since"
    del kept


def test_full_runs_take_a_small_share_of_the_time(begun, monkeypatch):
    collector, clock = begun
    collect = gc.collect

    def slow_collect() -> None:
        collect()
        clock.now += 0.01

    monkeypatch.setattr(gc, "collect", slow_collect)
    runs, before = 0, full_runs()
    kept = []
    for _ in range(100):
        kept.append([[] for _ in range(20_000)])
        kept = kept[-2:]
        clock.now += 0.1
        collector.after_batch(lambda: False)
    runs = full_runs() - before
    assert 10 <= runs <= 1 + 10.0 / (0.01 / garbage.BUDGET)


def test_what_handlers_leave_behind_is_bounded_though_batches_always_wait(begun):
    collector, _ = begun
    most = 0
    for _ in range(300):
        for _ in range(2_000):
            Knot()
        collector.after_batch(lambda: True)
        most = max(most, Knot.alive)
    assert most <= 1.5 * garbage.OVERDUE_OBJECTS


def test_a_large_cache_is_not_walked_through_for_every_batch(begun):
    collector, _ = begun
    cache = [[] for _ in range(1_000_000)]
    collector.after_batch(lambda: True)
    before = full_runs()
    for _ in range(100):
        cache += [[] for _ in range(2_000)]
        collector.after_batch(lambda: True)
    assert full_runs() == before, "a fifth of what survived"


def test_python_keeps_its_way_if_asked_to():
    collector, frozen = Collector(), gc.get_freeze_count()
    collector.begin(PYTHON)
    try:
        assert (gc.get_threshold(), gc.get_freeze_count()) == (garbage.STANDARD, frozen)
        before = full_runs()
        leave_knots(4)
        collector.after_batch(lambda: False)
        assert gc.get_stats()[2]["collections"] - before <= 1, "Python's own, if any"
        assert collector._pauses > 0, "but pauses are measured"
    finally:
        collector.end()


def test_a_handler_that_has_set_the_collector_keeps_its_way():
    gc.disable()
    collector, frozen = Collector(), gc.get_freeze_count()
    collector.begin()
    try:
        assert (gc.isenabled(), gc.get_freeze_count()) == (False, frozen)
    finally:
        collector.end()
        gc.enable()


LEAKING = """
class Knot:
    def __init__(self):
        self.own = self

def handle(data, context):
    for _ in range(20_000):
        Knot()
    return ["ok"] * len(data or [])
"""


def test_a_worker_tells_how_long_its_collector_paused(worker, monkeypatch):
    monkeypatch.setattr(garbage, "TELL_SECONDS", 0.0)
    one = worker(LEAKING)
    one.send(wire.batch(bodies(b"first"), 1))
    kind, _, number, payload = one.read_any()
    told = json.loads(payload)
    assert (kind, number) == (wire.TIMES, 1)
    assert told["gc_runs"] > 1 and 0 < told["gc_longest_us"] <= told["gc_us"]


class Single:
    @jitney.endpoint
    async def add(self, x: int) -> int:
        return x + len(jitney.context().requests)


@jitney.batch(max_batch_size=4)
def double(x: list[int]) -> list[int]:
    return [2 * one for one in x * len(jitney.context().requests)]


@pytest.mark.parametrize(("target", "body"), [(Single, b"4"), (double, b"6")])
def test_a_batch_of_a_definition_leaves_nothing_to_the_collector(target, body):
    model = DefinedModel(jitney.define(target))
    payload = wire.batch([wire.item([("body", "application/json", b"3")])])[16:]
    rows, metas = BatchDecoder().decode(payload, 1)
    context = make_context({"model_name": "m", "model_dir": "."}).for_batch(metas, 1)
    gc.collect()
    gc.disable()
    try:
        reply = model.handle(rows, context)
        if inspect.isawaitable(reply):
            reply = asyncio.run(reply)
        assert b"".join(reply).endswith(body)
        del reply
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [one for one in gc.garbage if type(one).__module__.startswith("jitney")] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
