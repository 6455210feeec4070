"""What a shadow costs those who wait: `python bench/shadow.py`.

A server at 60 % load, without and with a shadow that gets copies of all requests, by turns; the p99 with it over the p99
without it, as the median of five turns, and the share of copies that were dropped. Once with a model that waits, as for a
device of its own, and once with one that computes on the processors that everybody shares.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import urllib.request
from typing import Any

from server import BINARY, Server

TURNS = 5
SECONDS = 20
LOAD = 0.6
STEP_MS = 10
"""How long a request runs."""
WORKERS = os.cpu_count() or 1
RATE = LOAD * WORKERS * 1000 / STEP_MS

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


def written(folder: pathlib.Path, version: str, source: str) -> pathlib.Path:
    """A version of the model as a directory."""
    model = folder / version
    (model / "MAR-INF").mkdir(parents=True)
    (model / "handler.py").write_text(source)
    about = {"modelName": "bench", "modelVersion": version, "handler": "handler.py"}
    (model / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"runtime": "python", "model": about}))
    return model


def asked(server: Server, path: str, method: str = "GET", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{server.port('management')}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as answer:
        return json.load(answer)


def p99(server: Server) -> float:
    url = f"http://127.0.0.1:{server.port()}/predictions/bench"
    load = ["-r", f"{RATE:.0f}", "-d", f"{SECONDS}s", "--body", "x", "--json", "-", "--quiet"]
    told = subprocess.run([BINARY, "bench", url, *load], check=True, capture_output=True, text=True)
    total = json.loads(told.stdout)["total"]
    return float(total["answer_p99_ms"])


def ready(version: Any) -> bool:
    return sum(worker["status"] == "READY" for worker in version["workers"]) == WORKERS


def copies(server: Server) -> dict[str, int]:
    outcomes: dict[str, int] = asked(server, "/models/bench/2.0/shadow")["outcomes"]
    return outcomes


def measured(name: str, source: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two = (written(pathlib.Path(folder), version, source) for version in ("1.0", "2.0"))
        ratios, before, after = [], [], []
        with Server(one, f"bench={two}", "--workers", str(WORKERS)) as server:
            while not all(ready(version) for version in asked(server, "/models/bench/all")):
                time.sleep(0.05)
            p99(server)
            for _ in range(TURNS):
                asked(server, "/models/bench/traffic", "DELETE")
                before.append(p99(server))
                asked(server, "/models/bench/traffic", "PUT", SHADOW)
                after.append(p99(server))
                ratios.append(after[-1] / before[-1])
            ended = copies(server)
        dropped = ended.get("dropped", 0) / max(sum(ended.values()), 1)
        assert set(ended) <= {"same", "dropped"}, ended
        without, with_it = statistics.median(before), statistics.median(after)
        ratio = statistics.median(ratios)
        print(f"| {name} | {without:.1f} | {with_it:.1f} | **{ratio:.3f}** | {dropped:.0%} |", flush=True)


def main() -> None:
    print(f"\n## A shadow of all requests: {LOAD:.0%} load, {WORKERS} workers, {RATE:.0f} requests/s, {TURNS} turns\n")
    print("| model | p99 without, ms | p99 with, ms | with over without | copies dropped |")
    print("|---|---|---|---|---|")
    measured("waits", WAITS)
    measured("computes", COMPUTES)


if __name__ == "__main__":
    main()
