"""The device of a process, its share of a GPU and whose turn it is; without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
import wire

import jitney
from jitney.gpu import device as devices
from jitney.gpu.device import limit_memory, memory_used
from jitney.gpu.fetching import fetched, made_of, start_fetching
from jitney.gpu.turns import GpuTurns, turns_at
from jitney.worker.context import WorkerContext
from jitney.worker.defined import DefinedModel


@pytest.fixture
def torch(monkeypatch):
    """A torch with two GPUs that notes what it is told."""
    said: list[object] = []
    stream = types.SimpleNamespace(synchronize=lambda: said.append("synchronize"))
    cuda = types.SimpleNamespace(
        said=said,
        is_available=lambda: True,
        is_initialized=lambda: True,
        current_device=lambda: 0,
        set_device=lambda gpu: said.append(("device", gpu)),
        set_per_process_memory_fraction=lambda fraction, gpu: said.append((fraction, gpu)),
        memory_reserved=lambda gpu: 7 << 20,
        current_stream=lambda gpu: stream,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    return cuda


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(devices._Assigned, "by_server", False)
    monkeypatch.setattr(devices._Assigned, "gpu", None)
    monkeypatch.setattr(devices._Assigned, "current", None)
    return devices.assign


def test_a_worker_has_the_device_that_the_server_gave_it(torch, worker):
    worker(1)
    assert jitney.device() == "cuda:1"
    assert (jitney.device().type, jitney.device().index, jitney.device().is_gpu) == ("cuda", 1, True)
    worker(None)
    assert jitney.device() == "cpu"
    assert (jitney.device().type, jitney.device().index, jitney.device().is_gpu) == ("cpu", None, False)


def test_outside_a_worker_it_is_the_first_gpu_or_the_processor(torch, worker):
    assert jitney.device() == "cuda:0"
    torch.is_available = lambda: False
    assert jitney.device() == "cpu"


def test_a_torch_without_gpus_runs_on_the_processor_whatever_the_server_gave(torch, worker):
    torch.is_available = lambda: False
    worker(1)
    assert jitney.device() == "cpu"


def test_other_threads_use_the_gpu_that_was_current_where_the_model_was_loaded(torch, worker):
    """A handler that never chose one stays on GPU 0, as it does on TorchServe."""
    worker(1)
    torch.current_device = lambda: 0
    devices.keep_device()
    devices.enter_device()
    assert torch.said == []
    torch.current_device = lambda: 1
    devices.keep_device()
    devices.enter_device()
    assert torch.said == [("device", 1)]


def test_a_definition_begins_on_its_own_gpu_unless_it_has_something_on_another(torch, worker):
    worker(1)
    devices.choose_device()
    assert torch.said == []
    torch.is_initialized = lambda: False
    devices.choose_device()
    assert torch.said == [("device", 1)]


def test_asking_for_the_device_needs_no_torch():
    code = """
import sys
sys.modules["torch"] = None
import importlib.util
find, importlib.util.find_spec = importlib.util.find_spec, lambda name: None
del sys.modules["torch"]
import jitney
from jitney.gpu import device
device.assign(1)
print(jitney.device(), "torch" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["cuda:1", "False"]


def test_memory_is_limited_on_the_gpu_of_the_worker_or_a_sentence_says_why_not(torch):
    assert limit_memory(0.5, 1) is None
    assert torch.said == [(0.5, 1)]
    assert memory_used(1) == 7 << 20
    assert limit_memory(None, 1) is None
    assert limit_memory(0.5, None) is None
    torch.is_available = lambda: False
    assert limit_memory(0.5, 1) == "gpu_memory_fraction 0.5 has no effect: torch sees no GPU"
    assert memory_used(1) is None


def test_a_turn_lasts_until_the_gpu_is_done_and_excludes_others(torch, worker, tmp_path):
    mine, others = GpuTurns(str(tmp_path / "gpu-0")), GpuTurns(str(tmp_path / "gpu-0"))
    order: list[str] = []

    def other() -> None:
        others.run(lambda: order.append("other"))

    thread = threading.Thread(target=other)

    def run() -> int:
        thread.start()
        order.append("mine")
        return 5

    assert mine.run(run) == 5
    thread.join()
    assert order == ["mine", "other"]
    assert torch.said == ["synchronize", "synchronize"]


def test_whoever_waits_comes_before_whoever_wants_it_again(tmp_path):
    """One takes turn after turn without a pause, as a worker with a full queue does."""
    path = str(tmp_path / "gpu-0")
    mine, others = GpuTurns(path), GpuTurns(path)
    order: list[str] = []

    def other() -> None:
        with others:
            order.append("other")

    thread = threading.Thread(target=other)
    with mine:
        thread.start()
        _wait_until_locked(f"{path}.next")  # The other one is next.
    with mine:
        order.append("mine")
    thread.join()
    assert order == ["other", "mine"]


def _wait_until_locked(path: str) -> None:
    inode = f":{os.stat(path).st_ino} "
    while inode not in Path("/proc/locks").read_text():
        os.sched_yield()


def test_a_process_that_dies_frees_the_gpu_and_a_forked_one_keeps_nothing(tmp_path):
    path = str(tmp_path / "gpu-0")
    code = f"""
import os, sys
from jitney.gpu.turns import GpuTurns
turns = GpuTurns({path!r})
turns.__enter__()
if os.fork() == 0:
    sys.stdin.read()  # A helper that lives on.
    os._exit(0)
print("locked", flush=True)
os.kill(os.getpid(), 9)
"""
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdin is not None and worker.stdout is not None
    assert worker.stdout.readline() == b"locked\n"
    assert GpuTurns(path).run(lambda: "mine now") == "mine now"
    worker.stdin.close()
    worker.wait()
    worker.stdout.close()


def test_without_a_lock_file_there_are_no_turns():
    assert turns_at(None) is None


class GpuTensor:
    """A tensor on a GPU, or its copy on the host."""

    def __init__(self, said: list[object], is_cuda: bool = True) -> None:
        self.said, self.is_cuda, self.device = said, is_cuda, "cuda:1"

    def detach(self) -> GpuTensor:
        return self

    def to(self, device: str, non_blocking: bool) -> GpuTensor:
        self.said.append((device, non_blocking))
        return GpuTensor(self.said, is_cuda=False)


@pytest.fixture
def tensor(torch):
    event = types.SimpleNamespace(
        record=lambda stream: torch.said.append("record"), synchronize=lambda: torch.said.append("wait")
    )
    torch.Event = lambda blocking: event
    sys.modules["torch"].Tensor = GpuTensor
    return GpuTensor(torch.said)


def test_a_result_on_a_gpu_is_copied_as_a_whole_and_waited_for_later(torch, tensor):
    on_its_way = start_fetching({"a": tensor, "b": [tensor, 5]})
    assert torch.said == [("cpu", True), ("cpu", True), "record"]
    result = fetched(on_its_way)
    assert torch.said[3:] == ["wait"]
    assert (result["a"].is_cuda, result["b"][0].is_cuda, result["b"][1]) == (False, False, 5)
    assert start_fetching([1, 2]) == [1, 2]


def test_what_is_made_of_a_result_on_a_gpu_is_made_where_it_is_waited_for(torch, tensor):
    made = made_of([tensor], lambda found: [torch.said.append("made"), found[0].is_cuda])
    assert torch.said == [("cpu", True), "record"] and start_fetching(made) is made
    assert fetched(made) == [None, False] and torch.said[2:] == ["wait", "made"]
    assert made_of([1], lambda found: found[0] + 1) == 2


def test_a_batch_is_done_when_its_results_have_come_from_the_gpu(torch, tensor):
    @jitney.endpoint
    def call(x: int) -> object:
        return tensor if x else x

    model = DefinedModel(jitney.define(call))
    context = WorkerContext("m", "/", {}, 1, None, "")
    context.bind_batch([wire.item([("x", "", b"1")])[0]] * 2)
    batch = model.launch(model.begin([{"x": 1}, {"x": 0}], context), context)
    assert batch.done and "wait" not in torch.said
    batch.wait()
    assert batch.done is None and torch.said[-1] == "wait"
    assert model.launch(model.begin([{"x": 0}], context), context).done is None
