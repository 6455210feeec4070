"""What a second load of a torch model costs, and what four workers of it hold: `python bench/second_load.py PYTHON`.

PYTHON is an interpreter with torch. The model has 25 layers of 2048 x 2048 numbers, 400 MiB as a state dict. The first
load begins with its file dropped from the page cache, the second with it there; both end with the first answer, for
which every weight is read. `import torch` alone is beside them. Memory is the PSS of the workers after each has answered:
pages that several of them map count once.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from server import Server, read, tree

LAYERS, WIDTH, ROUNDS, WORKERS = 25, 2048, 3, 4

NET = f"""
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear({WIDTH}, {WIDTH}, bias=False) for _ in range({LAYERS}))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
HANDLER = f"""
import torch
from ts.torch_handler.base_handler import BaseHandler

class Handler(BaseHandler):
    def preprocess(self, data):
        return torch.ones(len(data), {WIDTH})

    def postprocess(self, data):
        return data.sum(1).tolist()
"""
STATE = (
    f"import torch; torch.save({{f'layers.{{at}}.weight': torch.randn({WIDTH}, {WIDTH}) / {WIDTH}"
    f" for at in range({LAYERS})}}, 'net.pt')"
)


def write_model(python: str, folder: pathlib.Path) -> pathlib.Path:
    """The model's directory; returns the file of its weights."""
    (folder / "MAR-INF").mkdir(parents=True)
    (folder / "net.py").write_text(NET)
    (folder / "handler.py").write_text(HANDLER)
    named = {"modelName": "bench", "modelVersion": "1.0", "handler": "handler.py"}
    manifest = {"runtime": "python", "model": {**named, "modelFile": "net.py", "serializedFile": "net.pt"}}
    (folder / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    subprocess.run([python, "-c", STATE], cwd=folder, check=True)
    return folder / "net.pt"


def drop(file: pathlib.Path) -> None:
    """Takes a file out of the page cache."""
    os.sync()
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ask(server: Server) -> None:
    """One answer."""
    with urllib.request.urlopen(f"{server.addresses['inference']}/predictions/bench", b"x", timeout=600) as answer:
        answer.read()


def load(model: pathlib.Path, flags: list[str]) -> float:
    """Seconds from the server's start to the first answer."""
    with Server(model, *flags) as server:
        ask(server)
        return time.perf_counter() - server.started


def held(model: pathlib.Path, flags: list[str], workers: int) -> float:
    """MiB of PSS that so many workers hold once all are ready and have answered."""
    with Server(model, *flags, "--workers", str(workers)) as server:
        while sum(worker["status"] == "READY" for worker in server.ask("/models/bench")[0]["workers"]) < workers:
            time.sleep(0.1)
        # Each holds a request meanwhile, so that all of them have read their weights.
        connections = [
            subprocess.Popen([sys.executable, "-c", ASKING, server.addresses["inference"]]) for _ in range(8)
        ]
        for connection in connections:
            connection.wait()
        pids = [pid for worker in server.workers() for pid in tree(worker)]
        return sum(pss(pid) for pid in pids) / 1024


ASKING = """
import sys, urllib.request
for _ in range(20):
    urllib.request.urlopen(sys.argv[1] + "/predictions/bench", b"x", timeout=600).read()
"""


def pss(pid: int) -> int:
    """KiB that a process holds, shared pages counted by share."""
    lines = read(pathlib.Path(f"/proc/{pid}/smaps_rollup")).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def importing(python: str) -> float:
    """Seconds of `import torch` in a new process."""
    started = time.perf_counter()
    subprocess.run([python, "-c", "import torch"], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Prints the two tables."""
    python = sys.argv[1]
    flags = ["--python", python, "--startup-wait", "600s"]
    with tempfile.TemporaryDirectory(prefix="jitney-bench-model-") as folder:
        model = pathlib.Path(folder, "bench")
        weights = write_model(python, model)
        firsts, seconds, imports = [], [], []
        for _ in range(ROUNDS):
            imports.append(importing(python))
            drop(weights)
            firsts.append(load(model, flags))
            seconds.append(load(model, flags))
        first, second, alone = (statistics.median(times) for times in (firsts, seconds, imports))
        print("| first load s | second load s | over the first | import torch alone s |\n|---|---|---|---|")
        print(f"| {first:.2f} | {second:.2f} | **{second / first:.2f}** | {alone:.2f} |")
        one, all_of_them = held(model, flags, 1), held(model, flags, WORKERS)
        print(f"\n| one worker, PSS MiB | {WORKERS} workers | over one |\n|---|---|---|")
        print(f"| {one:.0f} | {all_of_them:.0f} | **{all_of_them / one:.2f}** |")


if __name__ == "__main__":
    main()
