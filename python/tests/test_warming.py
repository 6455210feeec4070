"""Warming up between LOAD and LOADED, seen through the socket; without torch."""

from __future__ import annotations

import pytest
import wire
from wire import bodies

WARMED = """
from jitney.gpu.report import MeasuredSize, WarmUpReport

class Warmed:
    def initialize(self, context):
        self.sizes = context.batch_sizes

    def warm_up(self, progress):
        for at, size in enumerate(self.sizes):
            progress(at + 1, len(self.sizes), f"ran batch size {size}")
        return WarmUpReport(self.sizes, [MeasuredSize(2, 10.4, 20.6)], 2, 1 << 33, ["all is warm"])

    def handle(self, data, context):
        return [repr((context.batch_sizes, context.batch_lengths, context.compile_cache)) for _ in data]
"""


def test_progress_is_told_and_the_report_is_in_the_answer(raw_worker, model):
    one = raw_worker()
    one.load(model(WARMED), "handler.py", sizes=[2, 4], lengths=[32], compile_cache="/store/.compiled/a")
    assert one.read_control(wire.PROGRESS) == {"done": 1, "of": 2, "what": "ran batch size 2"}
    assert one.read_control(wire.PROGRESS) == {"done": 2, "of": 2, "what": "ran batch size 4"}
    loaded = one.read_control(wire.LOADED)
    assert loaded.pop("seconds") >= 0
    assert loaded == {
        "sizes": [2, 4], "measured": [[2, 10, 21]], "graphs": {"count": 2, "bytes": 1 << 33}, "notes": ["all is warm"],
    }  # fmt: skip
    assert one.ask(bodies(b""))[0]["body"] == b"([2, 4], [32], '/store/.compiled/a')"


def test_without_anything_to_say_nothing_is_said(raw_worker, model):
    one = raw_worker()
    one.load(model("class Plain:\n    def handle(self, data, context):\n        return ['x']"), "handler.py")
    assert set(one.read_control(wire.LOADED)) == {"seconds"}


def test_a_model_that_cannot_be_warmed_up_serves(raw_worker, model):
    one = raw_worker()
    broken = WARMED.replace("for at", "raise ValueError('no sample')\n        for at")
    one.load(model(broken), "handler.py")
    assert one.read_control(wire.LOADED)["notes"] == [
        "warming up failed, the model serves without it: ValueError: no sample"
    ]
    assert one.ask(bodies(b""))[0]["body"] == b"([], [], None)"


@pytest.mark.parametrize("parameters", ["self", "self, batches=3", "self, batches"])
def test_a_method_of_the_users_own_is_left_alone(raw_worker, model, parameters):
    one = raw_worker()
    own = (
        f"class Own:\n    def warm_up({parameters}):\n        raise ValueError\n    def handle(self, data, context):\n"
    )
    one.load(model(own + "        return ['x']"), "handler.py")
    assert set(one.read_control(wire.LOADED)) == {"seconds"}


def test_a_share_of_the_gpu_that_cannot_be_kept_is_a_note(raw_worker, model):
    one = raw_worker()
    one.load(model(WARMED), "handler.py", gpu_id=0, gpu_memory_fraction=0.5)
    assert one.read_control(wire.LOADED)["notes"][0].startswith("gpu_memory_fraction 0.5 has no effect: ")


def test_a_handler_takes_its_turns_on_the_gpu(raw_worker, model, tmp_path):
    lock = tmp_path / "gpu-0.lock"
    source = """
        import fcntl, os

        def handle(data, context):
            if data is None:
                return None
            file = os.open(bytes(data[0]["body"]), os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return ["free"]
            except BlockingIOError:
                return ["taken"]
            finally:
                os.close(file)
    """
    one = raw_worker()
    one.load(model(source), "handler.py", gpu_id=0, gpu_turns=str(lock))
    one.read_control(wire.LOADED)
    assert [one.ask(bodies(str(lock).encode()))[0]["body"] for _ in range(2)] == [b"taken", b"taken"]
