"""What open dashboards cost: `JITNEY_BIN=target/release/jitney python bench/dashboards.py`.

A handler that does nothing, 256 connections, batches of 32 (W1): requests per second and CPU of the server per request, by
turns without and with five who follow `/overview/stream` as the dashboard does. Medians of the rounds, and their ratio.
Where the machine is busy the ratio is noise; the CPU of the admin plane's thread, which does this work, is not.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from server import BINARY, Server

NOOP = "def handle(data, context):\n    return data and [b'ok'] * len(data)\n"
FLAGS = ("--batch-size", "32", "--queue", "1000")
CONNECTIONS = 256


@contextmanager
def followers(server: Server, count: int) -> Iterator[None]:
    """So many who read the stream."""
    url = server.addresses["management"] + "/overview/stream"
    following = [subprocess.Popen(["curl", "-sN", url], stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for one in following:
            one.kill()
            one.wait()


def admin_cpu(server: Server) -> float:
    """CPU seconds of the admin plane's thread, which is the first one."""
    pid = server.process.pid
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def measure(server: Server, seconds: float) -> tuple[float, float, float]:
    """Requests per second, CPU of the server in microseconds per request, CPU of the admin plane in ms per second."""
    url = server.addresses["inference"] + "/predictions/bench"
    before, admin = server.cpu_seconds()[0], admin_cpu(server)
    with tempfile.NamedTemporaryFile() as out:
        load = ["-c", str(CONNECTIONS), "-d", f"{seconds}s", "--warm-up", "0s", "--body", "x"]
        subprocess.run([BINARY, "bench", url, *load, "--json", out.name], check=True, capture_output=True)
        answered = json.load(out)["total"]["good"]
    spent, looking = server.cpu_seconds()[0] - before, admin_cpu(server) - admin
    return answered / seconds, spent / answered * 1e6, looking / seconds * 1e3


def main() -> None:
    """Prints a line per round, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--followers", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    asked = parser.parse_args()
    rows: dict[int, list[tuple[float, float, float]]] = {0: [], asked.followers: []}
    with Server(NOOP, *FLAGS) as server:
        measure(server, 1.0)
        for _ in range(asked.rounds):
            for count, found in rows.items():
                with followers(server, count):
                    found.append(measure(server, asked.seconds))
    for count, found in rows.items():
        rate, cpu, admin = (statistics.median(values) for values in zip(*found, strict=True))
        print(
            f"{count} followers: {rate:,.0f} requests/s, {cpu:.2f} us of CPU per request, admin plane {admin:.2f} ms/s"
        )
    without, with_them = (statistics.median(one[0] for one in found) for found in rows.values())
    print(f"throughput with {asked.followers} over without: {with_them / without:.3f}")


if __name__ == "__main__":
    main()
