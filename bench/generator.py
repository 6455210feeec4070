"""What `jitney bench` itself costs beside other generators: `python bench/run.py generator`.

Closed loops against the same no-op model, by turns; CPU counts the generator only. oha is measured where it is
installed (`cargo install oha`).
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable

from handlers import NOOP
from server import BINARY, Server

ROUNDS = 5
SECONDS = 4
BODY = '{"inputs": [1.5, 2.5, 3.5, 4.5], "name": "sensor-17", "unit": "celsius", "tags": ["a", "b", "c", 4]}'
CONNECTIONS = (1, 64, 256)

Measure = Callable[[Server, str, int], tuple[float, float]]
"""Requests per second, and CPU microseconds of the generator per request."""


def generator() -> None:
    """Rates and CPU per request of each generator."""
    found = {"wrk -t1": wrk, "jitney bench": own} | ({"oha": oha} if shutil.which("oha") else {})
    print(f"\n## Generators: closed loop, no-op model, 100-byte JSON body, medians of {ROUNDS} runs by turns\n")
    print("| connections | " + " | ".join(f"{name}: requests/s | CPU µs/request" for name in found) + " |")
    print("|---|" + "---|---|" * len(found))
    with Server(NOOP, "--batch-size", "32", "--queue", "1000", "--policy", "opportunistic") as server:
        url = f"http://127.0.0.1:{server.port()}/predictions/bench"
        own(server, url, 8)
        for connections in CONNECTIONS:
            rounds = [[measure(server, url, connections) for measure in found.values()] for _ in range(ROUNDS)]
            cells = [map(statistics.median, zip(*one)) for one in zip(*rounds)]
            row = " | ".join(f"{rate:.0f} | **{cpu:.2f}**" for rate, cpu in cells)
            print(f"| {connections} | {row} |", flush=True)


def wrk(server: Server, url: str, connections: int) -> tuple[float, float]:
    script = pathlib.Path(server.folder.name, "generator.lua")
    script.write_text(f"wrk.method = 'POST'\nwrk.body = '{BODY}'\nwrk.headers['Content-Type'] = 'application/json'\n")
    out, cpu = run(["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "-s", str(script), url])
    return rated(int(re.search(r"(\d+) requests in", out)[1]), cpu)


def own(_: Server, url: str, connections: int) -> tuple[float, float]:
    load = ["-c", str(connections), "-d", f"{SECONDS}s", "--warm-up", "0", "--body", BODY]
    out, cpu = run([BINARY, "bench", url, *load, "--json", "-", "--quiet"])
    return rated(json.loads(out)["total"]["answered"], cpu)


def oha(_: Server, url: str, connections: int) -> tuple[float, float]:
    load = ["-c", str(connections), "-z", f"{SECONDS}s", "-m", "POST", "-T", "application/json", "-d", BODY]
    out, cpu = run(["oha", "--no-tui", "--output-format", "json", *load, url])
    return rated(sum(json.loads(out)["statusCodeDistribution"].values()), cpu)


def run(command: list[str]) -> tuple[str, float]:
    """What a command printed, and the CPU seconds that it took."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command} exited with {process.returncode}"
    return out, used.ru_utime + used.ru_stime


def rated(requests: int, cpu: float) -> tuple[float, float]:
    return requests / SECONDS, cpu / requests * 1e6
