"""Measures what the project promises: `make bench`, or `python bench/run.py [overhead|cached|large|batching|live|overload|killing|many|growth|idle|capacity|known|thousand|submissions|lost|shared|canary|sticky|generator|cores ...]`.

Everything runs on this machine over loopback, load generator included, so rates are lower bounds and CPU per
request is the figure to compare. Each figure is the median of three runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))

from capacity import capacity
from cores import cores
from footprint import growth, idle_connections, many
from generator import generator
from handlers import NOOP, SLEEPY
from harness.load import run_load
from jobs import lost, shared, submissions
from live import live
from on_demand import known, thousand
from overload import overload
from rollouts import canary, sticky
from server import Server

ROUNDS = 3
SECONDS = 8
IDEAL = 32 / (0.005 + 0.0002 * 32)
JSON_BODY = '{"inputs": [1.5, 2.5, 3.5, 4.5], "name": "sensor-17", "unit": "celsius", "tags": ["a", "b", "c", 4]}'

PREDICTION = ("POST", "/predictions/bench")
JSON_SCRIPT = f"wrk.body = '{JSON_BODY}'\nwrk.headers['Content-Type'] = 'application/json'\n"


def overhead() -> None:
    """CPU and latency of a no-op handler: wrk with a 100-byte JSON body."""
    print("\n## Overhead: no-op Python handler, 100-byte JSON body, one worker\n")
    print("| batch | policy | connections | requests/s | p50 ms | p99 ms | CPU µs/request | server | worker | errors |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    plain = "opportunistic"
    rows = ((1, plain, 1), (32, plain, 1), (32, "adaptive", 1), (32, plain, 32), (32, plain, 256))
    for batch, policy, connections in rows:
        flags = ["--batch-size", str(batch), "--queue", "1000", "--policy", policy]
        with Server(NOOP, *flags) as server:
            wrk(server, connections, 2)
            runs = [wrk(server, connections, SECONDS) for _ in range(ROUNDS)]
        rate, p50, p99, total, front, back, errors = (statistics.median(column) for column in zip(*runs))
        print(
            f"| {batch} | {policy} | {connections} | {rate:.0f} | {p50:.2f} | {p99:.2f} | **{total:.1f}** | {front:.1f} | {back:.1f} | {errors:.0f} |"
        )


def cached() -> None:
    """The same body at 256 connections, run by the model, answered from its cache, and sent to /ping: by turns."""
    print("\n## Cache: the body of the overhead rows, 256 connections, one worker\n")
    print("| cache | requests/s | p50 ms | p99 ms | CPU µs/request | server | worker | errors |")
    print("|---|---|---|---|---|---|---|---|")
    rules = {"off": {"entries": 0}, "hit": {"ttl": "1h"}, "/ping, no model": {"entries": 0}}
    runs: dict[str, list[tuple[float, ...]]] = {name: [] for name in rules}
    with Server(NOOP, "--batch-size", "32", "--queue", "1000", "--policy", "opportunistic") as server:
        for _ in range(ROUNDS):
            for name, rule in rules.items():
                server.ask(f"/models/bench?cache={urllib.parse.quote(json.dumps(rule))}", method="PUT")
                asked = ("GET", "/ping") if name.startswith("/ping") else PREDICTION
                wrk(server, 256, 2, asked=asked)
                runs[name].append(wrk(server, 256, SECONDS, asked=asked))
    for name, rows in runs.items():
        rate, p50, p99, total, front, back, errors = (statistics.median(column) for column in zip(*rows))
        print(
            f"| {name} | {rate:.0f} | {p50:.2f} | {p99:.2f} | **{total:.1f}** | {front:.1f} | {back:.1f} | {errors:.0f} |"
        )


def wrk(
    server: Server, connections: int, seconds: int, body: str = JSON_SCRIPT, asked: tuple[str, str] = PREDICTION
) -> tuple[float, ...]:
    script = pathlib.Path(server.folder.name, "post.lua")
    method, path = asked
    script.write_text(f"wrk.method = '{method}'\n{body}")
    url = f"http://127.0.0.1:{server.port()}{path}"
    before = server.cpu_seconds()
    out = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), url],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    after = server.cpu_seconds()
    requests = int(re.search(r"(\d+) requests in", out)[1])
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    front, back = ((b - a) * 1e6 / requests for a, b in zip(before, after))
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    return rate, quantile(out, 50), quantile(out, 99), front + back, front, back, float(errors[1]) if errors else 0.0


def idle() -> None:
    """10,000 idle connections beside the load of the overhead row."""
    idle_connections(lambda server: wrk(server, 256, SECONDS)[0])


def large() -> None:
    """Bodies of 1 MiB over 8 connections, with batches of up to 8, by policy."""
    print("\n## Large bodies: 1 MiB, 8 connections, batches of up to 8, one worker\n")
    print("| policy | requests/s | p50 ms | p99 ms | CPU ms/request | server | worker | errors |")
    print("|---|---|---|---|---|---|---|---|")
    body = "wrk.body = string.rep('x', 1048576)\nwrk.headers['Content-Type'] = 'application/octet-stream'\n"
    for policy, flags in (("window 10 ms", ["--max-batch-delay-ms", "10"]), ("adaptive", [])):
        with Server(NOOP, "--batch-size", "8", *flags) as server:
            wrk(server, 8, 2, body)
            rows = [wrk(server, 8, SECONDS, body) for _ in range(ROUNDS)]
        rate, p50, p99, *cpu, errors = (statistics.median(column) for column in zip(*rows))
        total, front, back = (one / 1e3 for one in cpu)
        print(
            f"| {policy} | {rate:.0f} | {p50:.2f} | {p99:.2f} | **{total:.3f}** | {front:.3f} | {back:.3f} | {errors:.0f} |"
        )


def quantile(out: str, percent: int) -> float:
    number, unit = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s)", out, re.M).groups()
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def batching() -> None:
    """Closed loop of 64 connections on a handler that sleeps 5 ms + 0.2 ms per item."""
    print(f"\n## Batching: 5 ms + 0.2 ms per item, at most 32, 64 connections; ideal {IDEAL:.0f} requests/s\n")
    print("| policy | requests/s | of ideal | p50 ms | p99 ms | CPU µs/request | wrong or lost |")
    print("|---|---|---|---|---|---|---|")
    for policy, flags in (
        ("window 10 ms", ["--max-batch-delay-ms", "10"]),
        ("opportunistic", ["--policy", "opportunistic"]),
    ):
        rows = []
        for _ in range(ROUNDS):
            with Server(SLEEPY, "--batch-size", "32", *flags) as server:
                before = sum(server.cpu_seconds())
                result = closed_loop(server, requests=35_000)
                cpu = (sum(server.cpu_seconds()) - before) * 1e6 / result.answered
            rows.append(
                (result.rate, result.quantile(0.5) * 1e3, result.quantile(0.99) * 1e3, cpu, result.wrong + result.lost)
            )
        rate, p50, p99, cpu, bad = (statistics.median(column) for column in zip(*rows))
        bad = sum(row[-1] for row in rows)
        print(
            f"| {policy} | {rate:.0f} | **{rate / IDEAL:.1%}** | {p50:.1f} | {p99:.1f} | {cpu:.1f} | {bad} of {ROUNDS * 35_000} |"
        )


def killing() -> None:
    """The same load on two workers, one of which is killed every second for half a minute."""
    print("\n## Killing: the same load, 2 workers, kill -9 of one of them every second for 30 s\n")
    print("| answered | wrong | lost | kills | retried requests | requests/s |")
    print("|---|---|---|---|---|---|")
    with Server(SLEEPY, "--batch-size", "32", "--max-batch-delay-ms", "10", "--workers", "2") as server:
        kills: list[int] = []
        result = asyncio.run(load_while_killing(server, kills, seconds=30))
    print(
        f"| {result.answered} | {result.wrong} | {result.lost} | {len(kills)} | {result.retried} | {result.rate:.0f} |"
    )


def closed_loop(server: Server, **how_much: int):
    return asyncio.run(echo_load(server, **how_much))


async def echo_load(server: Server, **how_much: int):
    return await run_load("127.0.0.1", server.port(), "/predictions/bench", 64, body_of, is_own, **how_much)


async def load_while_killing(server: Server, kills: list[int], seconds: int):
    killer = asyncio.create_task(kill_every_second(server, kills))
    result = await echo_load(server, seconds=seconds)
    killer.cancel()
    return result


async def kill_every_second(server: Server, kills: list[int]) -> None:
    while True:
        await asyncio.sleep(1)
        if workers := server.workers():
            victim = workers[len(kills) % len(workers)]
            os.kill(victim, signal.SIGKILL)
            kills.append(victim)


def body_of(number: int) -> bytes:
    return b"request %d" % number


def is_own(number: int, status: int, body: bytes) -> bool:
    return status == 200 and body == body_of(number)


if __name__ == "__main__":
    started = time.monotonic()
    for name in sys.argv[1:] or ["overhead", "large", "batching", "killing"]:
        {
            "overhead": overhead,
            "cached": cached,
            "batching": batching,
            "killing": killing,
            "large": large,
            "live": live,
            "overload": overload,
            "many": many,
            "growth": growth,
            "capacity": capacity,
            "known": known,
            "thousand": thousand,
            "submissions": submissions,
            "lost": lost,
            "canary": canary,
            "sticky": sticky,
            "shared": shared,
            "idle": idle,
            "generator": generator,
            "cores": cores,
        }[name]()
    print(f"\n{time.monotonic() - started:.0f} s", file=sys.stderr)
