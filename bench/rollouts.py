"""New versions of a model on a live server: `python bench/run.py canary sticky`.

`canary`: a version with a share of 30 % begins to fail, or becomes slow, at 100 requests/s; how soon the server takes its
share away, and what clients saw of it in the minute around. `sticky`: 100,000 requests of 20,000 users through nginx to
two servers with the same shares; who saw which version. BENCH_SHARE=0.1 makes a try-out: fewer turns and users.
"""

from __future__ import annotations

import http.client
import os
import pathlib
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from server import Server, written

SHARE = float(os.environ.get("BENCH_SHARE", "1"))
TURNS = max(1, round(5 * SHARE))
RATE = 100
AROUND = 30
"""Seconds before the trouble begins, and after."""
CLIENTS = 32
WORKERS = 6
"""Of each version: so many that nobody waits, and the times are those of the versions."""
CANARY = {"shares": {"1.0": 70, "2.0": 30}, "return": {"errors": "+1%", "p99": "1.5x", "after": 50}}

USERS = max(100, round(20_000 * SHARE))
REQUESTS = 5 * USERS
SPLIT = {"shares": {"1.0": 70, "2.0": 20, "3.0": 10}, "sticky": "header:x-user"}

WORKS = """
import pathlib
import random
import time

TROUBLE = pathlib.Path({trouble!r})

def handle(data, context):
    if not data:
        return None
    trouble = TROUBLE.read_text() if TROUBLE.exists() and {version!r} == "2.0" else ""
    time.sleep(random.uniform(0.016, 0.024) * (2 if trouble == "slow" else 1))
    if trouble == "errors" and random.random() < 0.2:
        raise ValueError("one of five")
    return [{version!r}] * len(data)
"""
"""20 ms a request; in trouble version 2.0 fails one time in five, or takes twice as long."""
ANSWERS = 'def handle(data, context):\n    return data and ["{0}"] * len(data)\n'


def canary() -> None:
    """A version that begins to fail, and one that becomes slow."""
    print(f"\n## A canary at 30 %, {RATE} requests/s, after: 50, {TURNS} turns of {2 * AROUND} s\n")
    print("| trouble | back after s, median | longest | failed in the minute around, median | most |")
    print("|---|---|---|---|---|")
    for trouble in ("errors", "slow"):
        rows = [turn(trouble) for _ in range(TURNS)]
        backs, failed = [back for back, _ in rows], [share for _, share in rows]
        middles = f"**{statistics.median(backs):.1f}** | {max(backs):.1f} | **{statistics.median(failed):.2%}**"
        print(f"| {trouble} | {middles} | {max(failed):.2%} |", flush=True)


def turn(trouble: str) -> tuple[float, float]:
    """Seconds until the version is back, and the share of requests that failed in the minute around."""
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder, "trouble")
        one, two = (
            written(folder, version, WORKS.format(trouble=str(told), version=version)) for version in ("1.0", "2.0")
        )
        with Server(one, f"bench={two}", "--workers", str(WORKERS)) as server:
            server.wait_for_workers(WORKERS)
            server.ask("/models/bench/traffic", method="PUT", body=CANARY)
            load = OpenLoad(server.port(), RATE, 2 * AROUND)
            load.start()
            load.wait(AROUND)
            was_well = "returned" not in server.ask("/models/bench/traffic")
            # Written aside and renamed, so that no request reads half of it.
            told.with_suffix(".new").write_text(trouble)
            told.with_suffix(".new").rename(told)
            began = time.monotonic()
            while (back := time.monotonic() - began) < AROUND and "returned" not in server.ask("/models/bench/traffic"):
                time.sleep(0.02)
            load.join()
    assert was_well, "it went back while it was well"
    assert back < AROUND, f"it did not go back; requests ended with {dict(load.statuses)}"
    return back, 1 - load.statuses[200] / load.sent


class OpenLoad(threading.Thread):
    """Requests that come whatever happens to those before them, over connections that are kept."""

    def __init__(self, port: int, rate: float, seconds: float) -> None:
        super().__init__()
        self.port, self.rate, self.seconds = port, rate, seconds
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self.began = time.monotonic()
        self.kept = threading.local()
        self.lock = threading.Lock()

    def run(self) -> None:
        dice, at = random.Random(7), 0.0
        with ThreadPoolExecutor(CLIENTS) as pool:
            while (at := at + dice.expovariate(self.rate)) < self.seconds:
                self.wait(at)
                self.sent += 1
                pool.submit(self.ask)

    def wait(self, seconds: float) -> None:
        """Until so long after the beginning."""
        time.sleep(max(0.0, self.began + seconds - time.monotonic()))

    def ask(self) -> None:
        if not hasattr(self.kept, "connection"):
            self.kept.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.kept.connection.request("POST", "/predictions/bench", b"x")
        answer = self.kept.connection.getresponse()
        answer.read()
        with self.lock:
            self.statuses[answer.status] += 1


def sticky() -> None:
    """Two servers behind nginx: no user sees two versions, and the shares are what was asked for."""
    from nginx import Nginx

    assert shutil.which("nginx"), "nginx is missing: make setup WITH=nginx"
    seen: dict[str, Counter[str]] = {f"user-{number}": Counter() for number in range(USERS)}
    with tempfile.TemporaryDirectory() as folder:
        one, *others = (written(folder, version, ANSWERS.format(version)) for version in SPLIT["shares"])
        models = [f"bench={model}" for model in others]
        with Server(one, *models) as first, Server(one, *models) as second:
            both = (first, second)
            for server in both:
                server.wait_for_workers(1)
                server.ask("/models/bench/traffic", method="PUT", body=SPLIT)
            with Nginx(*(f"127.0.0.1:{server.port()}" for server in both)) as nginx:
                ask_all(nginx.port, seen)
            answered = [
                sum(model["totals"]["requests"] for model in server.ask("/overview")["models"]) for server in both
            ]
    versions = sum(seen.values(), Counter())
    two = sum(len(user) > 1 for user in seen.values())
    print(f"\n## Two servers behind nginx, sticky header: {versions.total():,} requests of {USERS:,} users\n")
    print(f"Requests by server: {answered[0]:,} and {answered[1]:,}. Users that saw two versions: **{two}**.\n")
    print("| version | share asked for | share of requests | points off |")
    print("|---|---|---|---|")
    for version, asked in SPLIT["shares"].items():
        share = versions[version] / versions.total() * 100
        print(f"| {version} | {asked} % | {share:.2f} % | **{share - asked:+.2f}** |", flush=True)


def ask_all(port: int, seen: dict[str, Counter[str]]) -> None:
    """Every user asks five times on average, in no order, over a few connections."""
    dice = random.Random(7)
    users = dice.choices(list(seen), k=REQUESTS)
    lists = [users[number::CLIENTS] for number in range(CLIENTS)]

    def ask(mine: list[str]) -> list[tuple[str, str]]:
        connection, found = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
        for user in mine:
            connection.request("POST", "/predictions/bench", b"x", {"x-user": user})
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == 200, text
            found.append((user, text))
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        for found in pool.map(ask, lists):
            for user, version in found:
                seen[user][version] += 1
