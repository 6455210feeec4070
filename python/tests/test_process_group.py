"""Workers of several processes: torchrun's environment, one answer per batch, one fate."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import wire
from wire import bodies

PARALLEL = {"parallelType": "tp", "torchrun": {"nproc-per-node": 3, "OMP_NUMBER_THREADS": 2}}
NAMES = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"]

RANKS = f"""
import json, os, sys

def handle(data, context):
    if data is None:
        open(f"rank-{{os.environ['RANK']}}", "w").write(str(os.getpid()))
        return None
    with open(f"seen-{{os.environ['RANK']}}", "a") as file:
        file.write("".join(bytes(row["body"]).decode() for row in data))
    if data[0]["body"] == b"die" and os.environ["RANK"] == "2":
        os._exit(7)
    return [json.dumps({{name: os.environ[name] for name in {NAMES!r}}}) for _ in data]
"""


@pytest.fixture
def group(model):
    """Starts the real process of a worker with several ranks."""
    with_process = []

    def start(source=RANKS, config=PARALLEL, **fields):
        worker = wire_process(model(source), config, **fields)
        with_process.append(worker)
        return worker

    yield start
    for worker in with_process:
        worker.sock.close()
        worker.process.wait(wire.PATIENCE_SECONDS)


def wire_process(directory, config, **fields):
    """The worker process with a server's end of its socket."""
    path = str(directory / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    env = {**os.environ, "JITNEY_WORKER_SOCKET": path, "JITNEY_WORKER_TOKEN": "t", "PYTHONPATH": wire.PYTHON_DIR}
    process = subprocess.Popen([sys.executable, "-m", "jitney.worker"], env=env, cwd=directory, start_new_session=True)
    listener.settimeout(wire.PATIENCE_SECONDS)
    server = wire.Server(listener.accept()[0])
    listener.close()
    server.process = process
    server.load(directory, "handler.py", model_yaml_config=config, **fields)
    return server


def alive(pid):
    """Whether a process still runs."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_rank_gets_every_batch_and_the_first_one_answers(group, model, tmp_path):
    worker = group()
    worker.read_control(wire.LOADED)
    (answer,) = worker.ask(bodies(b"a"))
    assert json.loads(answer["body"]) == dict(zip(NAMES, ["0", "0", "3", "3", "2"]))
    worker.ask(bodies(b"b", b"c"))
    worker.send(wire.control(wire.STOP))
    assert worker.process.wait(wire.PATIENCE_SECONDS) == 0
    assert [(tmp_path / f"seen-{rank}").read_text() for rank in range(3)] == ["abc"] * 3


def test_in_a_pipeline_the_first_rank_alone_gets_batches(group, tmp_path):
    worker = group(config={**PARALLEL, "parallelType": "pp"})
    worker.read_control(wire.LOADED)
    worker.ask(bodies(b"a"))
    worker.send(wire.control(wire.STOP))
    assert worker.process.wait(wire.PATIENCE_SECONDS) == 0
    assert (tmp_path / "rank-2").exists()
    assert [(tmp_path / f"seen-{rank}").exists() for rank in range(3)] == [True, False, False]


SIGHT = """
import os
def handle(data, context):
    if data is None:
        seen = (os.environ.get("CUDA_VISIBLE_DEVICES"), context.system_properties["gpu_id"])
        open(f"sight-{os.environ.get('RANK')}", "w").write(repr(seen))
    return [""] * len(data or [])
"""


@pytest.mark.parametrize(
    ("operator", "gpus", "seen"),
    [(None, [4, 5, 6], "4,5,6"), ("7, 6,5,GPU-uuid", [1, 2, 3], "6,5,GPU-uuid"), (None, [0, 1], "0,1")],
)
def test_every_rank_has_a_gpu_of_its_own_among_those_of_the_worker(group, tmp_path, monkeypatch, operator, gpus, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if operator is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", operator)
    worker = group(SIGHT, gpu_id=gpus[0], gpu_ids=gpus)
    worker.read_control(wire.LOADED)
    sights = [(tmp_path / f"sight-{rank}").read_text() for rank in range(3)]
    assert sights == [repr((seen, rank % len(gpus))) for rank in range(3)]


def test_one_process_may_have_several_gpus(group, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    worker = group(SIGHT, config={"parallelType": "custom", "parallelLevel": 2}, gpu_id=2, gpu_ids=[2, 3])
    worker.read_control(wire.LOADED)
    assert (tmp_path / "sight-None").read_text() == repr(("2,3", 0))


def test_without_gpus_nothing_is_hidden(group, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    group(SIGHT).read_control(wire.LOADED)
    assert (tmp_path / "sight-1").read_text() == repr((None, None))


@pytest.mark.parametrize("how", ["a rank exits", "the first is killed"])
def test_all_ranks_end_when_one_does(group, tmp_path, how):
    worker = group()
    worker.read_control(wire.LOADED)
    pids = [int((tmp_path / f"rank-{rank}").read_text()) for rank in range(3)]
    if how == "a rank exits":
        worker.send(wire.batch(bodies(b"die"), 1))
    else:
        os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait(wire.PATIENCE_SECONDS)
    assert worker.process.returncode != 0
    for pid in pids:
        wait_for_end(pid)


def wait_for_end(pid):
    """A killed process's children notice it by themselves."""
    end = time.monotonic() + wire.PATIENCE_SECONDS
    while alive(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_rank_that_cannot_load_fails_the_worker_with_its_message(group):
    source = """
import os
def handle(data, context):
    if os.environ['RANK'] == '1':
        raise ValueError('no part for me')
"""
    worker = group(source)
    assert "rank 1: ValueError: no part for me" in worker.read_control(wire.LOAD_FAILED)["message"]
    assert worker.process.wait(wire.PATIENCE_SECONDS) == 1


@pytest.mark.parametrize(
    ("torchrun", "complaint"), [({"nproc-per-node": "two"}, "nproc-per-node"), ({"nnodes": 2}, "nnodes must be 1")]
)
def test_an_impossible_group_is_rejected(group, torchrun, complaint):
    worker = group(config={"parallelType": "pp", "torchrun": torchrun})
    assert complaint in worker.read_control(wire.LOAD_FAILED)["message"]


def test_without_a_parallel_type_there_is_one_process(worker):
    source = """
import os
def handle(data, context):
    return ["ranks" if "RANK" in os.environ else "alone" for _ in data or []]
"""
    one = worker(source, model_yaml_config={"torchrun": {"nproc-per-node": 4}})
    assert one.ask(bodies(b""))[0]["body"] == b"alone"


GLOO = """
import torch
import torch.distributed as dist

class Summing:
    def initialize(self, context):
        dist.init_process_group("gloo")
        self.part = torch.tensor(float(dist.get_rank() + 1))

    def handle(self, data, context):
        numbers = torch.tensor([float(bytes(row["body"])) for row in data]) * self.part
        dist.all_reduce(numbers)
        return numbers.tolist()
"""


def test_ranks_compute_together_with_gloo(group):
    pytest.importorskip("torch", reason="NO TORCH HERE: ranks were not tested with gloo (make test-torch)")
    worker = group(GLOO)
    worker.read_control(wire.LOADED)
    answers = worker.ask(bodies(b"1", b"10"))
    assert [float(answer["body"]) for answer in answers] == [6.0, 60.0]
