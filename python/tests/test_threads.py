"""The threads of a worker follow the number of workers, between batches; seen through the socket, without torch."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import wire
from wire import bodies

SEEN = "str((os.environ.get('OMP_NUM_THREADS'), torch.get_num_threads(), threading.current_thread() is main)).encode()"
HEAD = "import os, sys, threading\ntorch = sys.modules['torch']\nmain = threading.current_thread()\n"
PLAIN = HEAD + f"def handle(data, context):\n    return data and [{SEEN} for _ in data]\n"
SOURCES = {
    "single": PLAIN,
    "concurrent": HEAD + f"async def handle(data, context):\n    return data and [{SEEN} for _ in data]\n",
    "continuous": PLAIN,
    "overlapping": HEAD
    + f"""
class Staged:
    def initialize(self, context): pass
    def batches_at_a_time(self): return 2
    def begin(self, data, context): return data
    def finish(self, data, context): return [{SEEN} for _ in data]
    def handle(self, data, context): return self.finish(data, context)
""",
}


@pytest.fixture
def torch(monkeypatch):
    """Eight processors, and what a worker needs of torch."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("jitney.torchserve.threads.processors", lambda: 8)
    no_gpu = SimpleNamespace(is_initialized=lambda: False)
    fake = SimpleNamespace(threads=4, get_num_threads=lambda: fake.threads, cuda=no_gpu)
    fake.set_num_threads = lambda threads: setattr(fake, "threads", threads)
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def share(one, workers) -> str:
    """What the model sees in its next batch after it was told of so many workers."""
    one.send(wire.control(wire.SHARE, {"workers": workers}))
    return one.ask(bodies(b"x"))[0]["body"].decode()


@pytest.mark.parametrize("kind", list(SOURCES))
def test_threads_follow_the_number_of_workers_between_batches(raw_worker, model, torch, kind):
    one = raw_worker()
    mode = "single" if kind == "overlapping" else kind
    one.load(model(SOURCES[kind]), "handler.py", workers=2, mode=mode)
    one.read_control(wire.LOADED)
    for workers, threads in ((2, 4), (1, 8), (3, 2), (100, 1), (2, 4)):
        assert share(one, workers) == str((str(threads), threads, True))


def test_a_worker_with_processors_of_its_own_uses_all_of_them(raw_worker, model, torch, monkeypatch):
    one = raw_worker()
    one.load(model(PLAIN), "handler.py", workers=2, pinned=True)
    one.read_control(wire.LOADED)
    assert share(one, 2) == str(("8", 8, True))
    monkeypatch.setattr("jitney.torchserve.threads.processors", lambda: 3)
    assert share(one, 5) == str(("3", 3, True)), "it was moved"


def test_a_number_that_makes_no_sense_changes_nothing(raw_worker, model, torch):
    one = raw_worker()
    one.load(model(PLAIN), "handler.py", workers=2)
    one.read_control(wire.LOADED)
    assert {share(one, workers) for workers in (0, -1, "many", None)} == {str(("4", 4, True))}


def test_threads_that_the_operator_set_are_left_alone(raw_worker, model, torch, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.threads = 3
    one = raw_worker()
    one.load(model(PLAIN), "handler.py", workers=2)
    one.read_control(wire.LOADED)
    assert share(one, 1) == str(("3", 3, True))


def test_threads_that_a_model_chose_are_left_alone(raw_worker, model, torch):
    one = raw_worker()
    one.load(model(PLAIN.replace("main =", "torch.set_num_threads(5); main =")), "handler.py", workers=2)
    one.read_control(wire.LOADED)
    assert share(one, 1) == share(one, 2) == str(("4", 5, True))


def test_threads_that_a_models_settings_name_are_left_alone(raw_worker, model, torch):
    """Also where it is the number that it would have got."""
    source = PLAIN.replace("main =", "from jitney.torchserve.threads import THREADS; THREADS.pin(); main =")
    one = raw_worker()
    one.load(model(source), "handler.py", workers=2)
    one.read_control(wire.LOADED)
    assert share(one, 1) == str(("4", 4, True))


def test_what_threadpoolctl_knows_follows_too(raw_worker, model, torch, monkeypatch):
    limits: list[int] = []
    monkeypatch.setitem(sys.modules, "threadpoolctl", SimpleNamespace(threadpool_limits=limits.append))
    one = raw_worker()
    one.load(model(PLAIN), "handler.py", workers=2)
    one.read_control(wire.LOADED)
    share(one, 1)
    share(one, 1)
    assert limits == [8]


def test_torch_that_was_imported_before_the_worker_was_forked_gets_its_number_by_call(raw_worker, model, torch):
    torch.threads = 8
    one = raw_worker()
    one.load(model(PLAIN), "handler.py", workers=2)
    one.read_control(wire.LOADED)
    assert one.ask(bodies(b"x"))[0]["body"].decode() == str(("4", 4, True))
