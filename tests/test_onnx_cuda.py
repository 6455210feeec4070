"""ONNX models on GPUs: what ONNX Runtime's CUDA provider is told. The machine needs no GPU: `nvidia-smi` is a script,
and the library a stand-in (data/onnx_runtime_with_cuda.c) that writes the options down and runs on the processor."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness import onnx
from harness.server import ASK_SECONDS, Server

LIBRARY = max((Path(pytest.importorskip("onnxruntime").__file__).parent / "capi").glob("libonnxruntime.so*"))
SOURCE = Path(__file__).parent / "data" / "onnx_runtime_with_cuda.c"
SMI = """#!/bin/sh
case "$1" in
-L) printf 'GPU 0: NVIDIA H200 (UUID: GPU-0)\\nGPU 1: NVIDIA H200 (UUID: GPU-1)\\n' ;;
*uuid*) printf '0, GPU-0, 0, 4096\\n1, GPU-1, 0, 4096\\n' ;;
*) printf '0, 37, 12, 1024, 4096\\n1, 37, 12, 1024, 4096\\n' ;;
esac
"""
"""Two GPUs of 4 GiB each."""

Options = dict[int, dict[str, str]]


class CudaMachine:
    """A machine with two GPUs, and with a library that has the CUDA provider."""

    def __init__(self, folder: Path) -> None:
        self.record, self.library = folder / "record", folder / "libonnxruntime.so"
        (folder / "nvidia-smi").write_text(SMI)
        (folder / "nvidia-smi").chmod(0o755)
        self.env = {"PATH": f"{folder}:{os.environ['PATH']}"}
        words = [f'-DREAL="{LIBRARY}"', f'-DRECORD="{self.record}"', "-ldl"]
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.library, SOURCE, *words], check=True)

    def told(self) -> Options:
        """The options of each process that has made a session with the provider."""
        told: Options = defaultdict(dict)
        for line in self.record.read_text().splitlines() if self.record.exists() else ():
            pid, what, key, value = line.split()
            told[int(pid)].update({key: value} if what == "option" else {})
        return told


@pytest.fixture
def machine(tmp_path: Path) -> CudaMachine:
    """The machine."""
    if shutil.which("cc") is None:
        pytest.skip("the stand-in for ONNX Runtime needs a C compiler")
    (tmp_path / "tools").mkdir()
    return CudaMachine(tmp_path / "tools")


@pytest.fixture
def serve(start: Callable[..., Server], tmp_path: Path, machine: CudaMachine) -> Callable[..., Server]:
    """Serves a model that adds, with two workers on GPUs."""
    values = [onnx.value(name, onnx.FLOAT, ["n", 2]) for name in "abc"]
    onnx.write(tmp_path / "add.onnx", [onnx.node("Add", ["a", "b"], "c")], values[:2], values[2:])
    flags = ["--onnx-library", machine.library, "--workers", "2"]

    def serve(*more: str, providers: str = "cuda,cpu", **options: object) -> Server:
        return start(
            "serve", tmp_path / "add.onnx", *flags, "--onnx-providers", providers, *more, env=machine.env, **options
        )

    return serve


def of_workers(server: Server, machine: CudaMachine) -> list[dict[str, str]]:
    """What each worker's session was told, after an answer of the model."""
    tensors = [{"name": name, "shape": [1, 2], "datatype": "FP32", "data": [1, 2]} for name in "ab"]
    answer = requests.post(server.url("/v2/models/add/infer"), json={"inputs": tensors}, timeout=ASK_SECONDS)
    assert answer.json()["outputs"][0]["data"] == [2, 4], answer.text
    pids = server.workers("add").values()
    told = machine.told()
    return [told[pid] for pid in pids if pid in told]


def test_workers_get_the_named_gpu_and_a_share_of_its_memory(serve, machine: CudaMachine) -> None:
    server = serve("--device-ids", "1", "--gpu-memory-fraction", "0.25")
    assert of_workers(server, machine) == [{"device_id": "1", "gpu_mem_limit": str(1 << 30)}] * 2
    assert server.describe("add")["deviceIds"] == [1]
    tried = [told for pid, told in machine.told().items() if pid not in server.workers("add").values()]
    assert tried == [{"device_id": "1"}], "the process that tries the model goes to the same GPU"


def test_workers_take_turns_over_the_gpus(serve, machine: CudaMachine) -> None:
    server = serve("--gpu-memory", "off")
    told = of_workers(server, machine)
    assert sorted(one["device_id"] for one in told) == ["0", "1"] and not any("gpu_mem_limit" in one for one in told)


def test_without_the_provider_no_gpu_is_given(serve, machine: CudaMachine) -> None:
    assert of_workers(serve("--device-ids", "1", providers="cpu"), machine) == []
    assert machine.told() == {}


def test_a_share_of_unknown_memory_is_an_error(serve, machine: CudaMachine) -> None:
    server = serve("--gpu-memory", "off", "--gpu-memory-fraction", "0.5", wait_for_workers=False)
    server.logged("it is not known how much memory GPU 1 has; nvidia-smi must be on the server's path")
