"""Workers that follow the load, live beside simulated: `python bench/run.py capacity`.

A Python model whose load sleeps 4.5 s and whose batches of at most 8 sleep 200 ms + 20 ms per item, a target of 1.5 s, 1
to 8 workers: the world of the simulated table in docs/guides/capacity.md, whose rates need no more than two processors.
Of its four hours the day has five minutes, a 48th; the bursts are those of the table, for five minutes in place of an
hour. Load time and curve are as they are there, and so is the time for which fewer workers would have to be enough, 30 s.

The same arrivals are played with workers that follow them and with 8 fixed ones, both live and in the simulator. The
simulator has the load time and the curve that the server measured. Worker-seconds count workers that load or serve, looked
at four times a second. BENCH_SHARE=0.2 makes a short try-out. BENCH_JSON=file writes what was seen over time.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from live import Curve, sizes
from server import BINARY, Server

SHARE = float(os.environ.get("BENCH_SHARE", "1"))
SECONDS = 300 * SHARE
WORKERS, BATCH, OBJECTIVE_MS = 8, 8, 1500
FULL = WORKERS * BATCH / 0.36
"""Requests/s that all workers can do."""
VARIATION = 4.0
"""Squared coefficient of variation of the gaps between requests."""
LOOK_SECONDS = 0.25
SAMPLES_MIN = 5
"""Batches of a size below which it is no point of a curve."""

MODEL = """
import time

time.sleep(4.5)


def handle(data, context):
    if data is None:
        return None
    time.sleep(0.2 + 0.02 * len(data))
    return [b"" for _ in data]
"""

LOADS: dict[str, Callable[[float], float]] = {
    "day": lambda at: FULL * (0.32 - 0.28 * math.sin(2 * math.pi * at / SECONDS)),
    "bursts": lambda at: FULL * (0.7 if at % SECONDS < 0.1 * SECONDS else 0.07),
}
"""Requests/s at a time."""


@dataclass
class Run:
    """What became of the requests, what it took, and what the server measured."""

    on_time: float
    worker_seconds: float
    looks: list[tuple[float, int]]
    load_ms: float
    curve: Curve


def capacity() -> None:
    """Plays all loads and prints the table."""
    print(f"\n## Workers that follow the load, live and simulated: {SECONDS:.0f} s each, 1 to {WORKERS} workers\n")
    print("| | on time, fixed | following | of fixed | worker-seconds of fixed | simulated: on time | of fixed | worker-seconds of fixed | load s | load average |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    seen = {}
    for name, rate in LOADS.items():
        with tempfile.TemporaryDirectory(prefix="jitney-capacity-") as folder:
            arrivals = pathlib.Path(folder, "arrivals.csv")
            arrivals.write_text("offset_s\n" + "".join(f"{at:.6f}\n" for at in times(rate)))
            busy = os.getloadavg()[1]
            ours = played(arrivals, "--min-workers", "1", "--max-workers", str(WORKERS))
            fixed = played(arrivals, "--workers", str(WORKERS))
            told = simulated(folder, arrivals, ours)
        seen[name] = {"live": vars(ours), "fixed": vars(fixed), "simulated": told}
        if file := os.environ.get("BENCH_JSON"):
            pathlib.Path(file).write_text(json.dumps(seen))
        there, held = told["ours"], told["fixed"]
        print(
            f"| {name} | {fixed.on_time:.4f} | {ours.on_time:.4f} | **{ours.on_time / fixed.on_time:.4f}** "
            f"| **{ours.worker_seconds / fixed.worker_seconds:.3f}** | {there['on_time']:.4f} "
            f"| **{there['on_time'] / held['on_time']:.4f}** "
            f"| **{there['worker_seconds'] / held['worker_seconds']:.3f}** "
            f"| {ours.load_ms / 1e3:.1f} | {busy:.1f} to {os.getloadavg()[1]:.1f} |",
            flush=True,
        )


def times(rate: Callable[[float], float]) -> Iterator[float]:
    """Arrivals at a rate that changes, with gaps of two exponential kinds."""
    dice = random.Random(1)
    share = 0.5 * (1 + math.sqrt((VARIATION - 1) / (VARIATION + 1)))
    at = 0.0
    while True:
        branch = share if dice.random() < share else 1 - share
        at += dice.expovariate(2 * branch * rate(at))
        if at >= SECONDS:
            return
        yield at


def played(arrivals: pathlib.Path, *flags: str) -> Run:
    """The live server under these arrivals."""
    limits = ["--batch-size", str(BATCH), "--max-latency-ms", str(OBJECTIVE_MS), "--queue", "10000"]
    with Server(MODEL, *limits, *flags) as server:
        fewest = WORKERS if "--workers" in flags else 1
        server.wait_for_workers(fewest)
        with looked_at(server) as looks:
            seen = generated(server, arrivals)
        [told] = server.ask("/models/bench/statistics")
        page = server.ask("/metrics", which="metrics")
    took, count = (metric(page, f"jitney_load_seconds_{part}") for part in ("sum", "count"))
    spans = [(later - at, workers) for (at, workers), (later, _) in pairwise(looks)]
    return Run(
        on_time=seen["good"] / seen["offered"],
        worker_seconds=sum(span * workers for span, workers in spans),
        looks=[(at - looks[0][0], workers) for at, workers in looks],
        load_ms=1e3 * took / count,
        curve=sizes(told),
    )


@contextmanager
def looked_at(server: Server) -> Iterator[list[tuple[float, int]]]:
    """The number of workers over time, with those that load."""
    looks: list[tuple[float, int]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            looks.append((time.monotonic(), len(server.ask("/models/bench")[0]["workers"])))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()


def generated(server: Server, arrivals: pathlib.Path) -> dict:
    """Plays the arrivals; what a client saw of them."""
    url = f"{server.addresses['inference']}/predictions/bench"
    command = [BINARY, "bench", url, "--trace", str(arrivals), "--warm-up", "0s", "--pool", "2048"]
    command += ["--body", "x", "--content-type", "application/octet-stream", "--objective", f"{OBJECTIVE_MS}ms"]
    done = subprocess.run([*command, "--quiet", "--json", "-"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["total"]


def metric(page: str, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name + "{"))


def simulated(folder: str, arrivals: pathlib.Path, run: Run) -> dict:
    """What the simulator says of the same arrivals with the curve and the load time that were measured."""
    curve = pathlib.Path(folder, "curve.csv")
    points = [(size, 1e3 * seconds / count) for size, (count, seconds) in run.curve.items() if count >= SAMPLES_MIN]
    curve.write_text("".join(f"{size},{took}\n" for size, took in points))
    world = [curve, BATCH, run.load_ms, OBJECTIVE_MS, WORKERS, arrivals]
    command = ["cargo", "run", "--release", "--quiet", "-p", "jitney-lab", "--example", "scaled", "--"]
    command += map(str, world)
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
