"""An ONNX model on a real GPU: `JITNEY_BIN=… python tests/gpu_onnx.py`, which `make test-gpu` runs.

It wants a GPU and a library of ONNX Runtime with the CUDA provider: ONNX_CUDA_LIBRARY, or that of the package
onnxruntime-gpu in this Python. Where there is none it prints one line and succeeds: the options that the provider is
given are tested everywhere (test_onnx_cuda.py), what it does with them only here.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROVIDER = "libonnxruntime_providers_cuda.so"
ROWS, WIDTH = 2, 64


def main() -> int:
    """Serves a model on the GPU and compares its answer."""
    library, why = lib(), missing()
    if why or library is None:
        print(f"!!! NOT RUN: an ONNX model on a GPU: {why or f'no libonnxruntime.so with {PROVIDER} beside it'}")
        return 0
    before = memory()
    with tempfile.TemporaryDirectory() as folder:
        told = ask(Path(folder), library, before)
    print(f"ONNX on {gpu()}: {told}")
    return 0


def missing() -> str:
    """What this machine lacks; nothing if it is all there."""
    if not os.environ.get("JITNEY_BIN"):
        return "JITNEY_BIN names no program"
    if importlib.util.find_spec("requests") is None:
        return "this Python has no requests"
    try:
        return "" if gpu() else "nvidia-smi finds no GPU"
    except (OSError, subprocess.CalledProcessError):
        return "there is no nvidia-smi that works"


def smi(query: str) -> str:
    """What nvidia-smi says of the first GPU."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "--id=0"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def gpu() -> str:
    """Its name."""
    return smi("name")


def memory() -> int:
    """Megabytes of it that are used."""
    return int(smi("memory.used"))


def lib() -> Path | None:
    """A library with the provider."""
    named = os.environ.get("ONNX_CUDA_LIBRARY")
    package = importlib.util.find_spec("onnxruntime")
    places = [Path(named).parent] if named else []
    places += [Path(one, "capi") for one in (package.submodule_search_locations or ())] if package else []
    for place in places:
        found = sorted(place.glob("libonnxruntime.so*"))
        if found and (place / PROVIDER).exists():
            return Path(named) if named else found[0]
    return None


def ask(folder: Path, library: Path, before: int) -> str:
    """Compares an answer, and finds the GPU in use."""
    import requests

    from harness import onnx
    from harness.server import ASK_SECONDS, Server

    values = [onnx.value(name, onnx.FLOAT, ["n", WIDTH]) for name in "xy"]
    onnx.write(folder / "squares.onnx", [onnx.node("Mul", ["x", "x"], "y")], values[:1], values[1:])
    flags = ["--onnx-library", library, "--onnx-providers", "cuda,cpu"]
    server = Server(Path(os.environ["JITNEY_BIN"]), folder / "server", ["serve", folder / "squares.onnx", *flags])
    try:
        numbers = [float(at % 7) for at in range(ROWS * WIDTH)]
        x = {"name": "x", "shape": [ROWS, WIDTH], "datatype": "FP32", "data": numbers}
        url = server.started().url("/v2/models/squares/infer")
        answer = requests.post(url, json={"inputs": [x]}, timeout=ASK_SECONDS)
        wanted = [number * number for number in numbers]
        assert answer.ok and answer.json()["outputs"][0]["data"] == wanted, answer.text
        used = memory() - before
        assert used > 0, "the model answers, and the GPU's memory has not grown"
        return f"answers are right, {used} MB of the GPU's memory are used"
    finally:
        server.end()


if __name__ == "__main__":
    sys.exit(main())
