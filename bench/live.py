"""The live server beside the simulator: `python bench/run.py live`.

A handler that sleeps 5 ms + 0.2 ms per item, one worker, batches of at most 32, 100 ms to answer. The adaptive policy
and `opportunistic` take turns, five times, each with

- an open loop, Poisson, through a pool of up to 2,048 connections of which the one that became free last is used;
- the same through nginx, which keeps 64 connections to the server;
- closed loops.

The simulator plays the same policy with the same arrivals, rate and pool. It is given two curves that were measured in
the same run: what the handler's sleeps took (they last longer than asked for, which no server can help), and what the
server saw, from the batch's last byte written to the answer's first byte read, in which the worker's own work and two
wake-ups are. What is left between live and the second is the server's own way: hand-over between batches, reading
requests, writing answers. `beyond` says where the time of a mean request goes that the simulator does not know.

BENCH_SHARE=0.1 makes a short try-out. BENCH_RUNS=1 takes one turn. BENCH_PRIORITY=10 runs server, workers, proxy and
generator at that real-time priority, for a machine that is busy with other things: keep it short, nothing else runs then.
BENCH_JSON=file writes all figures.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from handlers import TIMED
from harness.archives import Store
from harness.server import Server
from nginx import KEPT, Nginx

BINARY = pathlib.Path(os.environ.get("JITNEY_BIN", "target/release/jitney")).resolve()
SHARE = float(os.environ.get("BENCH_SHARE", "1"))
RUNS = int(os.environ.get("BENCH_RUNS", "5"))
PRIORITY = os.environ.get("BENCH_PRIORITY")
UNDER = ("chrt", "-f", PRIORITY) if PRIORITY else ()

BATCH, OBJECTIVE_MS, POOL = 32, 100, 2048
POLICIES = {"adaptive": "adaptive", "opportunistic": "eager"}
"""Ours, and what the simulator calls it."""
PATH = "/predictions/bench"
WARM_UP_SECONDS = {"pool": 0.5, "nginx": 0.5, "closed": 1.0}
"""After an open loop clients must first show that they come back."""
SAMPLES_MIN = 5
"""Batches of a size below which it is no point of a curve."""

AT_MOST = {"opportunistic": 1.03, "server": 1.08, "sleeps": 1.08}
"""Shares of p50 and p99. `server` is the curve that a server measures and exports; `sleeps` asks for more."""
CLOSED_BEFORE = {4: 621, 16: 1745, 64: 2635}
"""Requests/s of the build before; at least 0.98 of that, and with 64 at least 0.97 of the simulator."""


Curve = dict[int, tuple[int, float]]
"""Batches and seconds by size."""


@dataclass(frozen=True)
class Load:
    """One row: what is sent, and for how long."""

    way: str
    """`pool`, `nginx` or `closed`."""
    amount: int
    """Requests/s, or connections that wait for their answer."""
    seconds: float

    @property
    def counted_seconds(self) -> float:
        """The length of a run."""
        return round(max(1.0, self.seconds * SHARE), 3)

    def generated(self, seed: int) -> list[str]:
        """Flags of `jitney bench`."""
        length = ["--duration", f"{self.counted_seconds}s", "--warm-up", f"{WARM_UP_SECONDS[self.way]}s"]
        if self.way == "closed":
            return ["--connections", str(self.amount), *length]
        pool = ["--pool", str(POOL), "--pool-order", "last-freed"]
        return ["--rate", str(self.amount), *length, *pool, "--seed", str(seed)]

    def simulated(self, seed: int) -> list[str]:
        """Flags of `jitney simulate`."""
        if self.way == "closed":
            return ["--clients", str(self.amount)]
        size = KEPT if self.way == "nginx" else POOL
        requests = str(int(self.amount * self.counted_seconds))
        pool = ["--pool", str(size), "--pool-order", "last-freed"]
        return ["--rate", str(self.amount), "--requests", requests, "--seed", str(seed), *pool]


LOADS = [
    *(Load(way, rate, seconds) for way in ("pool", "nginx") for rate, seconds in ((300, 6), (1000, 3), (2000, 3))),
    *(Load("closed", clients, 2) for clients in (4, 16, 64)),
]


def live() -> None:
    """Runs all loads by turns and prints the tables."""
    found: dict[tuple[str, Load], list[dict]] = {(policy, load): [] for policy in POLICIES for load in LOADS}
    for run in range(RUNS):
        for policy in list(POLICIES)[:: -1 if run % 2 else 1]:
            with tempfile.TemporaryDirectory(prefix="jitney-live-") as folder, served(folder, policy) as measured:
                for load in LOADS:
                    row = measured.run(load, policy, seed=run + 1)
                    found[policy, load].append(row)
                    short = {key: round(value, 2) for key, value in row.items() if isinstance(value, float)}
                    print(run + 1, policy, load.way, load.amount, short, file=sys.stderr, flush=True)
    medians = {key: medians_of(rows) for key, rows in found.items()}
    print(f"\n## Live: 5 ms + 0.2 ms per item, at most {BATCH}, {OBJECTIVE_MS} ms, one worker; medians of {RUNS} turns")
    missed = print_open(medians) + print_closed(medians)
    print("\nBars missed: " + ("; ".join(missed) or "none"))
    if file := os.environ.get("BENCH_JSON"):
        rows = [
            {"policy": policy, "way": load.way, "amount": load.amount, "median": medians[policy, load], "runs": rows}
            for (policy, load), rows in found.items()
        ]
        pathlib.Path(file).write_text(json.dumps(rows, indent=1))


@contextmanager
def served(folder: str, policy: str) -> Iterator[Measured]:
    """A server with this policy, and nginx in front of it."""
    slept = pathlib.Path(folder, "slept.csv")
    slept.touch()
    store = Store(pathlib.Path(folder, "store"))
    model = store.mar("bench", source=TIMED.replace("SLEPT_FILE", str(slept)))
    limits = ["--batch-size", str(BATCH), "--max-latency-ms", str(OBJECTIVE_MS), "--queue", str(POOL)]
    flags = ["serve", f"bench={model}", "--policy", policy, *limits]
    server = Server(BINARY, pathlib.Path(folder, "home"), flags, under=UNDER).started()
    try:
        with Nginx("{}:{}".format(*server.address), under=UNDER) as nginx:
            yield Measured(server, nginx, slept)
    finally:
        server.end()


@dataclass(frozen=True)
class Measured:
    """A server under load, and what it says of itself."""

    server: Server
    nginx: Nginx
    slept: pathlib.Path

    def run(self, load: Load, policy: str, seed: int) -> dict:
        """Latency and rate as a client sees them, as they are simulated, and where the time went."""
        before, slept_before = self.statistics(), self.sleeps()
        url = self.nginx.url(PATH) if load.way == "nginx" else self.server.url(PATH)
        seen = generate(url, *load.generated(seed))["total"]
        after, slept_after = self.statistics(), self.sleeps()
        slept = difference(slept_before, slept_after)
        computed = difference(sizes(before), sizes(after))
        row = {
            "mean": seen["answer_mean_ms"],
            "p50": seen["answer_p50_ms"],
            "p99": seen["answer_p99_ms"],
            "per_s": seen["answered_per_s"],
            "bad": seen["offered"] - seen["good"],
        }
        for name, curve in (("sleeps", slept), ("server", computed)):
            simulated = simulate(policy, curve, load.simulated(seed))
            row |= {f"{name}_{key}": simulated[theirs] for key, theirs in SIMULATED.items()}
        return row | attribute(before, after, slept, computed, seen["answer_mean_ms"])

    def statistics(self) -> dict:
        """What the server has counted."""
        return self.server.manage("GET", "/models/bench/statistics").json()[0]

    def sleeps(self) -> Curve:
        """Batches and seconds by size, as the handler took them."""
        rows = [line.split(",") for line in self.slept.read_text().splitlines()]
        return {int(size): (int(count), float(seconds)) for size, count, seconds in rows}


SIMULATED = {"mean": "mean_ms", "p50": "p50_ms", "p99": "p99_ms", "per_s": "answers_per_second"}


def sizes(told: dict) -> Curve:
    """Batches and seconds by size, as the server saw them."""
    return {it["size"]: (it["answeredBatches"], it["computeSecondsSum"]) for it in told["sizes"]}


def difference(before: Curve, after: Curve) -> Curve:
    """What was added to a count by size."""
    added = {}
    for size, (count, seconds) in sorted(after.items()):
        count_before, seconds_before = before.get(size, (0, 0.0))
        if count > count_before:
            added[size] = (count - count_before, seconds - seconds_before)
    return added


def attribute(before: dict, after: dict, slept: Curve, computed: Curve, client_ms: float) -> dict:
    """Where the time of a mean request went, in milliseconds."""

    def added(part: str, key: str) -> float:
        return after[part][key] - before[part][key]

    requests = max(1, added("total", "answeredRequests"))
    batches = max(1, added("total", "answeredBatches"))
    latency = 1e3 * added("requests", "latencySecondsSum") / requests
    # The handler's file is a little older than the server's numbers: sizes are compared one by one.
    both = [(computed[size], slept[size]) for size in computed.keys() & slept.keys()]
    beside = sum(seconds - count * asleep[1] / asleep[0] for (count, seconds), asleep in both)
    return {
        "batch": added("total", "answeredItems") / batches,
        "queue": 1e3 * added("total", "queueSecondsSum") / requests,
        "worker": 1e3 * beside / max(1, sum(count for (count, _), _ in both)),
        "door": client_ms - latency,
    }


def generate(url: str, *flags: str) -> dict:
    """Runs the load generator."""
    command = [*UNDER, BINARY, "bench", url, "--body", "body", "--quiet", "--json", "-"]
    command += ["--content-type", "application/octet-stream", "--objective", f"{OBJECTIVE_MS}ms", *flags]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return json.loads(out)


def simulate(policy: str, curve: Curve, load: list[str]) -> dict:
    """What the simulator expects of the same policy with this curve."""
    points = [f"{size},{1e3 * seconds / count}" for size, (count, seconds) in curve.items() if count >= SAMPLES_MIN]
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write("\n".join(points))
        file.flush()
        world = ["--curve", file.name, "--max-batch", str(BATCH), "--deadline", f"{OBJECTIVE_MS}ms"]
        command = [BINARY, "simulate", *world, "--policy", POLICIES[policy], "--json", *load]
        [told] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return told


def medians_of(rows: list[dict]) -> dict[str, float]:
    """The median of each figure by itself."""
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def print_open(medians: dict[tuple[str, Load], dict[str, float]]) -> list[str]:
    """The table of the open loops; returns the bars that were missed."""
    print(
        "\nOpen loop, Poisson; mean / p50 / p99 in ms, and p50 / p99 as shares of: `opportunistic`, the simulator with "
        "the sleeps as they were, the simulator with the batch times that the server saw; `beyond` in ms: the worker "
        "beside the sleep, the way from client to queue and from answer to client\n"
    )
    print(
        "| way | requests/s | adaptive | batch | opportunistic | of it | simulator, sleeps | of it | simulator, server | of it | beyond: worker, way | not good |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    missed = []
    for load in (load for load in LOADS if load.way != "closed"):
        ours, plain = medians["adaptive", load], medians["opportunistic", load]
        of = {
            "opportunistic": shares(ours, plain, ""),
            "sleeps": shares(ours, ours, "sleeps_"),
            "server": shares(ours, ours, "server_"),
        }
        print(
            f"| {load.way} | {load.amount} | {times(ours)} | {ours['batch']:.1f} | {times(plain)} | {bold(of['opportunistic'])} "
            f"| {times(ours, 'sleeps_')} | {bold(of['sleeps'])} | {times(ours, 'server_')} | {bold(of['server'])} "
            f"| {ours['worker']:.2f}, {ours['door']:.2f} | {ours['bad']:.0f} |"
        )
        for name, most in AT_MOST.items():
            for key, share in zip(("p50", "p99"), of[name]):
                if share > most:
                    missed.append(f"{load.way} {load.amount}/s {key}: {share:.3f} of {name}, at most {most}")
    return missed


def print_closed(medians: dict[tuple[str, Load], dict[str, float]]) -> list[str]:
    """The table of the closed loops; returns the bars that were missed."""
    print("\nClients that wait for their answer; requests/s\n")
    print(
        "| connections | adaptive | of the build before | opportunistic | simulator, sleeps | of it | simulator, server | of it | batch | p50 / p99 ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    missed = []
    for load in (load for load in LOADS if load.way == "closed"):
        ours, plain = medians["adaptive", load], medians["opportunistic", load]
        before, slept, seen = CLOSED_BEFORE[load.amount], ours["sleeps_per_s"], ours["server_per_s"]
        print(
            f"| {load.amount} | {ours['per_s']:.0f} | **{ours['per_s'] / before:.3f}** | {plain['per_s']:.0f} "
            f"| {slept:.0f} | **{ours['per_s'] / slept:.3f}** | {seen:.0f} | {ours['per_s'] / seen:.3f} "
            f"| {ours['batch']:.1f} | {ours['p50']:.1f} / {ours['p99']:.1f} |"
        )
        if ours["per_s"] < 0.98 * before:
            missed.append(f"{load.amount} connections: {ours['per_s'] / before:.3f} of {before}/s, at least 0.98")
        if load.amount == 64 and ours["per_s"] < 0.97 * slept:
            missed.append(f"64 connections: {ours['per_s'] / slept:.3f} of the simulator, at least 0.97")
    return missed


def times(row: dict[str, float], prefix: str = "") -> str:
    """Mean, median and 99th percentile."""
    return " / ".join(f"{row[prefix + key]:.2f}" for key in ("mean", "p50", "p99"))


def shares(ours: dict[str, float], theirs: dict[str, float], prefix: str) -> list[float]:
    """Median and 99th percentile as shares of another's."""
    return [ours[key] / theirs[prefix + key] for key in ("p50", "p99")]


def bold(values: list[float]) -> str:
    """Shares as the table shows them."""
    return " / ".join(f"**{value:.3f}**" for value in values)
