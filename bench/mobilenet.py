"""MobileNet v2 (random weights, 224 x 224) in ONNX Runtime: a bare loop, and Jitney in the same run, by turns.

    .venv/torch/bin/python bench/mobilenet.py target/release/jitney [--seconds 10] [--rounds 3]

Batch 8, one thread. `worker` compares the CPU time that the worker process needs for an item with that of the loop;
`http` compares items per second over 16 connections with binary tensors of one item each with those of the loop.
Needs torch, torchvision and onnxruntime, as `make setup .venv/torch/ready` installs them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime

BATCH, CONNECTIONS, SHAPE = 8, 16, (3, 224, 224)
TICK = os.sysconf("SC_CLK_TCK")


def export(path: Path) -> None:
    """Writes the model with an open batch."""
    import torch
    import torchvision

    torch.manual_seed(0)
    net = torchvision.models.mobilenet_v2().eval()
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes, "opset_version": 16}
    older = {} if torch.__version__.startswith("1.") else {"dynamo": False}
    torch.onnx.export(net, torch.zeros(2, *SHAPE), str(path), **names, **older)


class Loop:
    """ONNX Runtime and nothing else."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.batch = np.random.default_rng(0).normal(size=(BATCH, *SHAPE)).astype(np.float32)

    def run(self, seconds: float) -> tuple[float, float]:
        """Items per second, and per second of CPU time."""
        items, wall, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - wall < seconds:
            self.session.run(None, {"x": self.batch})
            items += BATCH
        return items / (time.perf_counter() - wall), items / (time.process_time() - cpu)


class Served:
    """The same model in a server with one worker."""

    def __init__(self, binary: Path, path: Path) -> None:
        library = Path(onnxruntime.__file__).parent / "capi"
        flags = ["--workers", "1", "--batch-size", str(BATCH), "--onnx-library", str(library), "--onnx-threads", "1"]
        ports = [
            word for name in ("port", "management-port", "metrics-port", "grpc-port") for word in (f"--{name}", "0")
        ]
        self.process = subprocess.Popen(
            [binary, "serve", path, *flags, *ports, "--grpc-management-port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout
        self.port = 0
        for line in self.process.stdout:
            if found := re.search(r"^Inference +http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
            if self.port and "model ready" in line:
                break
        else:
            sys.exit("the server did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        item = np.random.default_rng(0).normal(size=(1, *SHAPE)).astype(np.float32).tobytes()
        tensor = {"name": "x", "shape": [1, *SHAPE], "datatype": "FP32", "parameters": {"binary_data_size": len(item)}}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        self.headers = {"Inference-Header-Content-Length": str(len(head))}
        self.body = head + item

    def worker_seconds(self) -> float:
        """The CPU time of the worker process."""
        total = 0.0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                command = stat.with_name("cmdline").read_bytes()
                words = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if b"onnx-worker" in command and int(words[1]) == self.process.pid:
                total += (int(words[11]) + int(words[12])) / TICK
        return total

    def run(self, seconds: float) -> tuple[float, float]:
        """Items per second, and per second of the worker's CPU time."""
        counts, ends, wall, cpu = (
            [0] * CONNECTIONS,
            time.perf_counter() + seconds,
            time.perf_counter(),
            self.worker_seconds(),
        )

        def ask(place: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            while time.perf_counter() < ends:
                connection.request("POST", "/v2/models/mobilenet/infer", self.body, self.headers)
                reply = connection.getresponse()
                text = reply.read()
                if reply.status != 200:
                    raise RuntimeError(text)
                counts[place] += 1

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        items = sum(counts)
        return items / (time.perf_counter() - wall), items / max(self.worker_seconds() - cpu, 1 / TICK)

    def end(self) -> None:
        """Ends it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def main() -> None:
    """Measures by turns and prints the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "mobilenet.onnx"
        export(path)
        loop, served = Loop(path), Served(flags.binary.resolve(), path)
        try:
            loop.run(1)
            served.run(2)
            rounds = [(loop.run(flags.seconds), served.run(flags.seconds)) for _ in range(flags.rounds)]
        finally:
            served.end()
    bare, ours = (np.median([turn[side] for turn in rounds], axis=0) for side in (0, 1))
    print(f"bare loop   {bare[0]:7.1f} items/s  {bare[1]:7.1f} items per CPU-second")
    print(f"worker      {'':17}{ours[1]:7.1f} items per CPU-second  ratio {ours[1] / bare[1]:.3f}")
    print(f"http        {ours[0]:7.1f} items/s{'':32}ratio {ours[0] / bare[0]:.3f}")


if __name__ == "__main__":
    main()
