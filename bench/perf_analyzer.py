"""Triton's own load generator against a model of ours, over HTTP and gRPC: does it complete, and what does it count?

    python bench/perf_analyzer.py --jitney target/release/jitney --perf-analyzer perf_analyzer [--libraries DIR]

The program is in the wheel of tritonclient 2.51.0 for manylinux1. It needs libb64.so.0d and libcudart.so.12, which are
in the wheel of nvidia-pytriton; `--libraries` names the directory that holds them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness import onnx  # noqa: E402 - a directory of the repository, not an installed package

START_SECONDS = 60


def serve(jitney: Path, home: Path) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Starts the server with a small model, and says where it listens."""
    model = onnx.write(
        home / "twice.onnx",
        [onnx.node("Add", ["x", "x"], "y")],
        [onnx.value("x", onnx.FLOAT, ["n", 16])],
        [onnx.value("y", onnx.FLOAT, ["n", 16])],
    )
    ports = [f"--{name}port=0" for name in ("", "management-", "metrics-", "grpc-", "grpc-management-")]
    with (home / "stdout").open("wb") as out:
        command = [str(jitney), "serve", str(model), "--batch-size", "8", "--allow-client-shared-memory", *ports]
        process = subprocess.Popen(command, stdout=out, cwd=home)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        said = (home / "stdout").read_text()
        if "Try:" in said:
            http = re.search(r"^Inference +http://(\S+)$", said, re.MULTILINE)[1]
            grpc = re.search(r"^gRPC inference +(\S+)$", said, re.MULTILINE)[1]
            return process, {"http": http, "grpc": grpc}
        time.sleep(0.05)
    process.kill()
    raise SystemExit("the server did not start")


def measure(program: Path, libraries: Path | None, url: str, flags: list[str]) -> str:
    """One run; its table."""
    env = dict(os.environ)
    if libraries:
        env["LD_LIBRARY_PATH"] = f"{libraries}:{env.get('LD_LIBRARY_PATH', '')}"
    windows = ["--measurement-interval", "2000", "--max-trials", "5", "-s", "999"]
    command = [str(program), "-m", "twice", "-u", url, *windows, *flags]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}\n{run.stdout}\n{run.stderr}")
    return run.stdout


def main() -> None:
    """Runs every way and prints one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jitney", type=Path, default=ROOT / "target" / "release" / "jitney")
    parser.add_argument("--perf-analyzer", type=Path, required=True)
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--concurrency", default="1:9:8")
    given = parser.parse_args()
    load = ["--concurrency-range", given.concurrency]
    ways = {
        "HTTP": ("http", load),
        "gRPC": ("grpc", load),
        "gRPC, 8 rows": ("grpc", [*load, "-b", "8"]),
        "gRPC, asynchronous": ("grpc", [*load, "--async"]),
        "gRPC, stream": ("grpc", [*load, "--streaming", "--async"]),
        "gRPC, shared memory": (
            "grpc",
            [*load, "--shared-memory", "system", "--output-shared-memory-size", "4096"],
        ),
    }
    with tempfile.TemporaryDirectory() as home:
        process, urls = serve(given.jitney.resolve(), Path(home))
        try:
            for name, (protocol, flags) in ways.items():
                table = measure(given.perf_analyzer, given.libraries, urls[protocol], ["-i", protocol, *flags])
                results = re.findall(
                    r"^Concurrency: (\d+), throughput: ([\d.]+).*latency (\d+) usec", table, re.MULTILINE
                )
                if not results:
                    raise SystemExit(f"{name}: no result\n{table}")
                print(name, *(f"{at} at a time: {rate}/s, {usec} us" for at, rate, usec in results), sep="; ")
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
