"""Throughput by the number of workers on a machine with many cores, beside mosec, and by the number of data threads:
`python bench/run.py cores`, with mosec importable by PEERS_PYTHON (default: this Python).

A no-op model, a JSON body of 100 bytes, batches of at most 32, 384 connections. Servers have the first ten sixteenths of
the processors, six generators the rest. All turns of a row follow each other, and medians are compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from generator import BODY
from handlers import NOOP
from server import BINARY, Server, cpu, tree

ROUNDS = 3
SECONDS = 3
GENERATORS, CONNECTIONS = 6, 64
WORKERS = (1, 2, 4, 8)
THREADS = (1, 2, 4, 8)
PORTS_WAITED = 60.0
MOSEC = """
import sys
from mosec import Server, Worker


class Noop(Worker):
    def deserialize(self, data):
        return data

    def forward(self, data):
        return [len(row) for row in data]


if __name__ == "__main__":
    workers = int(sys.argv.pop())
    server = Server()
    server.append_worker(Noop, num=workers, max_batch_size=32, max_wait_time=1)
    server.run()
"""


def cores() -> None:
    """Both tables."""
    processors = sorted(os.sched_getaffinity(0))
    split = len(processors) * 10 // 16
    for_servers, for_generators = processors[:split], processors[split:]
    if len(for_generators) < GENERATORS:
        raise SystemExit(f"it needs 16 processors: 10 for the server and 6 generators; here are {len(processors)}")
    print(f"\n## {len(for_servers)} cores for the server, {GENERATORS} generators with {CONNECTIONS} connections each; "
          f"medians of {ROUNDS} turns\n")  # fmt: skip
    print("| workers | Jitney: requests/s | cores | mosec: requests/s | cores | ratio |\n|---|---|---|---|---|---|")
    for workers in WORKERS:
        turns = []
        for _ in range(ROUNDS):
            with jitney(for_servers, "--workers", str(workers)) as (url, pid):
                ours = loaded(url, pid, for_generators)
            with mosec(for_servers, workers) as (url, pid):
                turns.append((*ours, *loaded(url, pid, for_generators)))
        rate, used, other, by_other = map(statistics.median, zip(*turns))
        ratio = statistics.median(turn[0] / turn[2] for turn in turns)
        print(f"| {workers} | {rate:.0f} | {used:.1f} | {other:.0f} | {by_other:.1f} | {ratio:.2f} |", flush=True)
    print("\n| data threads, 8 workers | requests/s | cores | over the row before |\n|---|---|---|---|")
    before = None
    for threads in THREADS:
        turns = []
        for _ in range(ROUNDS):
            with jitney(for_servers, "--workers", "8", "--io-threads", str(threads)) as (url, pid):
                turns.append(loaded(url, pid, for_generators))
        rate, used = map(statistics.median, zip(*turns))
        gain = f"{rate / before:.2f}" if before else "-"
        print(f"| {threads} | {rate:.0f} | {used:.1f} | {gain} |", flush=True)
        before = rate


@contextlib.contextmanager
def jitney(processors: list[int], *flags: str) -> Iterator[tuple[str, int]]:
    """Our server on these processors: where to send, and its process."""
    os.sched_setaffinity(0, processors)
    with Server(NOOP, "--batch-size", "32", "--queue", "10000", *flags) as server:
        server.wait_until_ready()
        yield f"http://127.0.0.1:{server.port()}/predictions/bench", server.process.pid


@contextlib.contextmanager
def mosec(processors: list[int], workers: int) -> Iterator[tuple[str, int]]:
    """mosec on these processors."""
    os.sched_setaffinity(0, processors)
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        app = pathlib.Path(folder, "app.py")
        app.write_text(MOSEC)
        command = [os.environ.get("PEERS_PYTHON", sys.executable), str(app), "--port", str(port), "--capacity", "10000"]
        process = subprocess.Popen([*command, str(workers)], cwd=folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            listening(port)
            yield f"http://127.0.0.1:{port}/inference", process.pid
        finally:
            process.terminate()
            process.wait(60)


def listening(port: int) -> None:
    """Waits until a server takes connections."""
    ends = time.monotonic() + PORTS_WAITED
    while True:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 1).close()
        if time.monotonic() > ends:
            raise RuntimeError("the server did not start")
        time.sleep(0.1)


def loaded(url: str, pid: int, processors: list[int]) -> tuple[float, float]:
    """Requests per second of all generators, and the cores that the server and its workers used."""
    load = [BINARY, "bench", url, "-c", str(CONNECTIONS), "-d", f"{SECONDS}s", "--body", BODY, "--json", "-", "--quiet"]
    before = sum(cpu(one) for one in tree(pid))
    started = time.perf_counter()
    running = [
        subprocess.Popen(["taskset", "-c", str(processor), *load], stdout=subprocess.PIPE, text=True)
        for processor in processors[:GENERATORS]
    ]
    reports = [json.loads(one.communicate()[0]) for one in running]
    used = (sum(cpu(one) for one in tree(pid)) - before) / (time.perf_counter() - started)
    return sum(report["total"]["answered"] for report in reports) / SECONDS, used
