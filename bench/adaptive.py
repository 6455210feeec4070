"""The adaptive policy on the live server beside the simulator: `python bench/run.py adaptive`.

A handler that sleeps 5 ms + 0.2 ms per item, one worker, batches of at most 32, 50 ms to answer. Sleeps last longer than
asked for, which no server can help: the handler notes what they took, and beside the simulator with the nominal times
stands one with those. Clients that wait are wrk's connections; requests that come whatever happens are made by `jitney bench`.
BENCH_SHARE=0.1 makes a short try-out.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import time

from handlers import SLEEPY, TIMED
from server import BINARY, Server

SHARE = float(os.environ.get("BENCH_SHARE", "1"))
SECONDS = max(2.0, 20 * SHARE)

BATCH, OBJECTIVE_MS = 32, 50
CURVE = "5+0.2b"
CAPACITY = BATCH / (0.005 + 0.0002 * BATCH)
CLIENTS = (1, 8, 32, 64)
LOADS = (0.5, 0.9, 1.5, 3.0)
FLAGS = ("--batch-size", str(BATCH), "--max-latency-ms", str(OBJECTIVE_MS), "--queue", "2000")
RECOVERY_SECONDS = 3


def adaptive() -> None:
    """Clients that wait, requests that do not, and the way back from three times what can be served."""
    print(
        f"\n## Adaptive: 5 ms + 0.2 ms per item, at most {BATCH}, {OBJECTIVE_MS} ms, one worker; capacity {CAPACITY:.0f} requests/s"
    )
    closed()
    opened()


def closed() -> None:
    """Throughput of clients that wait for their answer."""
    print(f"\nClients that wait for their answer, {SECONDS:.0f} s each; goal 95 %\n")
    print(
        "| connections | requests/s | simulator | of it | with the sleeps as they were | of it | p50 ms | p99 ms | other than 2xx |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    expected = simulate("--clients", ",".join(map(str, CLIENTS)))
    with Server(TIMED, *FLAGS) as server:
        wrk(server, 8, 1)
        for clients, sim in zip(CLIENTS, expected):
            rate, p50, p99, errors = wrk(server, clients, SECONDS)
            slept = pathlib.Path(server.folder.name, "bench", "slept.csv")
            [fair] = simulate("--clients", str(clients), curve=str(slept))
            shares = (
                f"{should:.0f} | **{rate / should:.1%}**" for should in (it["answers_per_second"] for it in (sim, fair))
            )
            print(f"| {clients} | {rate:.0f} | {' | '.join(shares)} | {p50:.1f} | {p99:.1f} | {errors} |", flush=True)


def opened() -> None:
    """Goodput of requests that come whatever happens."""
    print(
        f"\nRequests that come whatever happens, Poisson, {SECONDS:.0f} s each; goals 93 %, refusals below 5 ms, back within 1 s\n"
    )
    print(
        "| load | rate | in time/s | simulator | of it | refused | with reason and Retry-After | refusal p50 ms | answer p50 / p99 ms | expired | lost | good again after s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for load in LOADS:
        rate = load * CAPACITY
        [sim] = simulate("--rate", f"{rate:.0f}", "--requests", f"{int(rate * SECONDS)}")
        with Server(SLEEPY, *FLAGS) as server:
            wrk(server, 8, 1)
            phases = [f"{rate:.0f}x{SECONDS}", f"{CAPACITY / 2:.0f}x{RECOVERY_SECONDS}"]
            loaded, after = open_loop(server, phases)
        should = sim["on_time_per_second"]
        print(
            f"| {load} | {rate:.0f} | {loaded['good_per_s']:.0f} | {should:.0f} | **{loaded['good_per_s'] / should:.1%}** "
            f"| {loaded['rejected']} | {loaded['explained']} | {loaded['rejection_p50_ms']:.2f} "
            f"| {loaded['answer_p50_ms']:.1f} / {loaded['answer_p99_ms']:.1f} | {loaded['expired']} | {loaded['lost']} "
            f"| {after['last_bad_s']:.2f} |",
            flush=True,
        )


def open_loop(server: Server, phases: list[str]) -> list[dict]:
    """What became of each phase's requests."""
    url = f"http://127.0.0.1:{server.port()}/predictions/bench"
    load = [
        "--phase",
        *phases,
        "--pool",
        "2000",
        "--objective",
        f"{OBJECTIVE_MS}ms",
        "--warm-up",
        "0",
        "--body",
        "body",
    ]
    command = [BINARY, "bench", url, *load, "--json", "-", "--quiet"]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    return json.loads(out)["phases"]


def simulate(*load: str, curve: str = CURVE) -> list[dict]:
    """What the simulator expects of the same policy."""
    world = [
        "--curve",
        curve,
        "--max-batch",
        str(BATCH),
        "--deadline",
        f"{OBJECTIVE_MS}ms",
        "--policy",
        "adaptive",
        "--json",
    ]
    out = subprocess.run([BINARY, "simulate", *world, *load], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def wrk(server: Server, connections: int, seconds: float) -> tuple[float, float, float, int]:
    """Rate, median and 99th percentile in milliseconds, and answers other than 2xx."""
    script = pathlib.Path(server.folder.name, "body.lua")
    script.write_text("wrk.method = 'POST'\nwrk.body = 'body'\n")
    url = f"http://127.0.0.1:{server.port()}/predictions/bench"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency", "-s", str(script), url]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    time.sleep(0.1)  # The last connections end.
    return rate, quantile(out, 50), quantile(out, 99), int(errors[1]) if errors else 0


def quantile(out: str, percent: int) -> float:
    """A latency of wrk's list in milliseconds."""
    number, unit = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s)", out, re.M).groups()
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]
