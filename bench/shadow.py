"""What a shadow costs those who wait: `python bench/shadow.py`.

A server at 60 % load, without and with a shadow that gets copies of all requests, by turns; the p99 with it over the p99
without it, as the median of five turns, and the share of copies that were dropped. Once with a model that waits, as for a
device of its own, and once with one that computes on the processors that everybody shares. What 100 % is, is measured
first: as many connections as workers, without a shadow. BENCH_SHARE=0.2 makes a try-out with shorter turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from typing import Any

from server import BINARY, Server, written

SHARE = float(os.environ.get("BENCH_SHARE", "1"))
TURNS = 5
SECONDS = max(2, round(20 * SHARE))
LOAD = 0.6
STEP_MS = 10
"""How long a request runs."""
WORKERS = os.cpu_count() or 1

WAITS = f"""
import time

def handle(data, context):
    for _ in data or []:
        time.sleep({STEP_MS / 1000})
    return data and ["ok"] * len(data)
"""
COMPUTES = f"""
import time

def handle(data, context):
    for _ in data or []:
        end = time.thread_time() + {STEP_MS / 1000}
        while time.thread_time() < end:
            pass
    return data and ["ok"] * len(data)
"""
SHADOW = {"shadow": {"version": "2.0"}}


def load(server: Server, *flags: str) -> dict[str, Any]:
    """What the generator saw of a turn."""
    url = f"http://127.0.0.1:{server.port()}/predictions/bench"
    words = ["-d", f"{SECONDS}s", "--body", "x", "--json", "-", "--quiet"]
    told = subprocess.run([BINARY, "bench", url, *flags, *words], check=True, capture_output=True, text=True)
    total: dict[str, Any] = json.loads(told.stdout)["total"]
    return total


def copies(server: Server) -> dict[str, int]:
    outcomes: dict[str, int] = server.ask("/models/bench/2.0/shadow")["outcomes"]
    return outcomes


def measured(name: str, source: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two = (written(folder, version, source) for version in ("1.0", "2.0"))
        ratios, before, after, rejected = [], [], [], 0
        with Server(one, f"bench={two}", "--workers", str(WORKERS)) as server:
            server.wait_for_workers(WORKERS)
            rate = LOAD * load(server, "-c", str(WORKERS))["answered_per_s"]

            def p99() -> float:
                nonlocal rejected
                total = load(server, "-r", f"{rate:.0f}")
                rejected += total["rejected"]
                return float(total["answer_p99_ms"])

            for _ in range(TURNS):
                server.ask("/models/bench/traffic", method="DELETE")
                before.append(p99())
                server.ask("/models/bench/traffic", method="PUT", body=SHADOW)
                after.append(p99())
                ratios.append(after[-1] / before[-1])
            ended = copies(server)
        dropped = ended.get("dropped", 0) / max(sum(ended.values()), 1)
        assert set(ended) <= {"same", "dropped"}, ended
        without, with_it = statistics.median(before), statistics.median(after)
        ratio = statistics.median(ratios)
        row = f"| {name} | {rate:.0f} | {without:.1f} | {with_it:.1f} | **{ratio:.3f}** | {dropped:.0%} | {rejected} |"
        print(row, flush=True)


def main() -> None:
    print(f"\n## A shadow of all requests: {LOAD:.0%} load, {WORKERS} workers, {TURNS} turns of {SECONDS} s\n")
    print("| model | requests/s | p99 without, ms | p99 with, ms | with over without | copies dropped | rejected |")
    print("|---|---|---|---|---|---|---|")
    measured("waits", WAITS)
    measured("computes", COMPUTES)


if __name__ == "__main__":
    main()
