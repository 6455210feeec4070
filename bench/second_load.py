"""What a second load of a torch model costs, and what four workers of it hold: `python bench/second_load.py PYTHON`.

PYTHON is an interpreter with torch. The model has 25 layers of 2048 x 2048 numbers, 400 MiB as a state dict. The first
load begins with the server's start and its file dropped from the page cache; for the second its workers leave and come
back. Both end with an answer, for which every weight is read. `import torch` alone is beside them. Memory is the PSS of
all of the server's processes but itself after each worker has answered: pages that several of them map count once. All
of it without and with `--preload torch,torch._inductor.compile_fx`: where OpenVINO is installed the handlers import its
backend, which needs the second module; elsewhere the first one is enough.
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
PRELOAD = "torch,torch._inductor.compile_fx"

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


def loads(model: pathlib.Path, flags: list[str]) -> tuple[float, float]:
    """Seconds from the server's start to the first answer, and from no worker to the next one."""
    with Server(model, *flags) as server:
        ask(server)
        first = time.perf_counter() - server.started
        scale(server, 0)
        again = time.perf_counter()
        scale(server, 1)
        ask(server)
        return first, time.perf_counter() - again


def scale(server: Server, workers: int) -> None:
    """Returns when so many workers are there."""
    query = f"min_worker={workers}&max_worker={workers}&synchronous=true"
    order = urllib.request.Request(f"{server.addresses['management']}/models/bench?{query}", method="PUT")
    with urllib.request.urlopen(order, timeout=600) as answer:
        answer.read()


def held(model: pathlib.Path, flags: list[str], workers: int) -> float:
    """MiB of PSS that so many workers, and what they were forked from, hold once all are ready and have answered."""
    with Server(model, *flags, "--workers", str(workers)) as server:
        while sum(worker["status"] == "READY" for worker in server.ask("/models/bench")[0]["workers"]) < workers:
            time.sleep(0.1)
        # Each holds a request meanwhile, so that all of them have read their weights.
        connections = [
            subprocess.Popen([sys.executable, "-c", ASKING, server.addresses["inference"]]) for _ in range(8)
        ]
        for connection in connections:
            connection.wait()
        _, *pids = tree(server.process.pid)
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


def measured(python: str, model: pathlib.Path, weights: pathlib.Path, more: list[str]) -> str:
    """A line of the table."""
    flags = ["--python", python, "--startup-wait", "600s", *more]
    firsts, seconds = [], []
    for _ in range(ROUNDS):
        drop(weights)
        first, second = loads(model, flags)
        firsts.append(first)
        seconds.append(second)
    first, second = statistics.median(firsts), statistics.median(seconds)
    one, all_of_them = held(model, flags, 1), held(model, flags, WORKERS)
    times = f"{first:.2f} | {second:.2f} | **{second / first:.2f}**"
    return f"{times} | {one:.0f} | {all_of_them:.0f} | **{all_of_them / one:.2f}**"


def main() -> None:
    """Prints the table."""
    python = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="jitney-bench-model-") as folder:
        model = pathlib.Path(folder, "bench")
        weights = write_model(python, model)
        alone = statistics.median(importing(python) for _ in range(ROUNDS))
        print(f"import torch alone: {alone:.2f} s\n")
        print("| | first load s | second s | over the first | one worker MiB | four | over one |")
        print("|---|---|---|---|---|---|---|")
        print(f"| each imports | {measured(python, model, weights, [])} |", flush=True)
        print(f"| `--preload {PRELOAD}` | {measured(python, model, weights, ['--preload', PRELOAD])} |")


if __name__ == "__main__":
    main()
