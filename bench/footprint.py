"""What the server itself weighs: with many models, over many requests, over many registrations.

RSS, threads and open files are the server process's own; workers are counted apart. BENCH_SHARE=0.01 makes a try-out
of every count, for a debug binary.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import resource
import socket
import statistics
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator

from handlers import NOOP
from harness.load import run_load
from server import Server

SHARE = float(os.environ.get("BENCH_SHARE", "1"))
MODELS = max(2, int(100 * SHARE))
REQUESTS = max(100, int(100_000 * SHARE))
CYCLES = max(10, int(1_000 * SHARE))
LOTS = 10
LISTINGS = 20
IDLE = max(100, int(10_000 * SHARE))
AFTER_SECONDS = 10


def many() -> None:
    """100 registered models: half of them working, half idle."""
    print(f"\n## Many: {MODELS} models; what the server process itself weighs\n")
    print("| models | with a worker | asked | RSS MiB | threads | open files | list ms (median) |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="jitney-bench-store-") as store:
        names = [f"m{number}" for number in range(MODELS)]
        for name in names:
            pack(pathlib.Path(store, f"{name}.mar"))
        with Server(NOOP, "--model-store", store) as server:
            ask(server, "predictions/bench", b"warm")
            row(server, 0, 0, 0)
            for name in names:
                manage(server, "POST", f"models?url={name}.mar&model_name={name}&initial_workers=0")
            row(server, MODELS, 0, 0)
            half = names[: MODELS // 2]
            for name in half:
                manage(server, "PUT", f"models/{name}?min_worker=1&synchronous=true")
            for name in half:
                ask(server, f"predictions/{name}", b"x" * 100)
            row(server, MODELS, len(half), len(half))
            for name in names[MODELS // 2 :]:
                manage(server, "PUT", f"models/{name}?min_worker=1&synchronous=true")
            row(server, MODELS, MODELS, len(half))


def row(server: Server, models: int, workers: int, asked: int) -> None:
    times = [listing(server) for _ in range(LISTINGS)]
    rss, threads, files = weigh(server)
    print(
        f"| {models} | {workers} | {asked} | {rss:.1f} | {threads} | {files} | {statistics.median(times) * 1e3:.2f} |"
    )


def listing(server: Server) -> float:
    started = time.perf_counter()
    manage(server, "GET", "models?limit=100")
    return time.perf_counter() - started


def growth() -> None:
    """RSS over 100,000 requests, then over 1,000 times register and unregister."""
    print(f"\n## Growth: {REQUESTS} requests, then {CYCLES} times register and unregister; the server process itself\n")
    print("| after | RSS MiB | threads | open files | directories of models | wrong or lost |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="jitney-bench-store-") as store:
        pack(pathlib.Path(store, "cycle.mar"))
        with Server(NOOP, "--batch-size", "32", "--queue", "1000", "--model-store", store) as server:
            ask(server, "predictions/bench", b"warm")
            grown(server, "the start", 0)
            for lot, bad in enumerate(requests_in_lots(server), 1):
                grown(server, f"{REQUESTS * lot // LOTS} requests", bad)
            for lot in range(1, LOTS + 1):
                cycles(server, CYCLES // LOTS)
                grown(server, f"{CYCLES * lot // LOTS} cycles", 0)


def requests_in_lots(server: Server) -> Iterator[int]:
    for _ in range(LOTS):
        result = asyncio.run(
            run_load("127.0.0.1", server.port(), "/predictions/bench", 64, body_of, is_own, requests=REQUESTS // LOTS)
        )
        yield result.wrong + result.lost


def body_of(number: int) -> bytes:
    return b"x" * (number % 500)


def is_own(number: int, status: int, body: bytes) -> bool:
    return status == 200 and body == b"%d" % (number % 500)


def cycles(server: Server, count: int) -> None:
    """Every tenth model also gets a worker and a request before it goes."""
    for number in range(count):
        staffed = number % 10 == 0
        manage(server, "POST", f"models?url=cycle.mar&model_name=cycle&initial_workers={int(staffed)}&synchronous=true")
        if staffed:
            ask(server, "predictions/cycle", b"x")
        manage(server, "DELETE", "models/cycle")


def grown(server: Server, after: str, bad: int) -> None:
    rss, threads, files = weigh(server)
    print(f"| {after} | {rss:.1f} | {threads} | {files} | {unpacked(server)} | {bad} |")


def idle_connections(load: Callable[[Server], float]) -> None:
    """10,000 idle keep-alive connections: what they weigh, what they cost others, what is left of them.

    `load` measures the requests per second of other clients.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"\n## Idle: {IDLE} idle keep-alive connections; the server process itself\n")
    print("| connections | RSS MiB | KB per connection | requests/s of others |")
    print("|---|---|---|---|")
    with Server(NOOP, "--batch-size", "32", "--queue", "1000", "--max-batch-delay-ms", "1") as server:
        ask(server, "predictions/bench", b"warm")
        load(server)
        without = load(server)
        before = weigh(server)[0]
        print(f"| 0 | {before:.1f} | | {without:.0f} |")
        clients = [client(server) for _ in range(IDLE)]
        rss = weigh(server)[0]
        rate = load(server)
        print(f"| {IDLE} | {rss:.1f} | {(rss - before) * 1024 / IDLE:.1f} | {rate:.0f} ({rate / without:.2f}) |")
        for connection in clients:
            connection.close()
        time.sleep(AFTER_SECONDS)
        print(f"| 0, {AFTER_SECONDS} s after | {weigh(server)[0]:.1f} | | |")
        print(f"| 0, later | | | {load(server):.0f} |")


def client(server: Server) -> socket.socket:
    """A connection that has sent one request and stays."""
    connection = socket.create_connection(("127.0.0.1", server.port()), timeout=60)
    connection.sendall(b"GET /ping HTTP/1.1\r\nHost: bench\r\n\r\n")
    if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
        raise RuntimeError("the server does not answer")
    return connection


def unpacked(server: Server) -> int:
    """Archives that lie unpacked in the server's scratch directory, which is where its workers dial in."""
    return sum(1 for path in server.scratch().rglob("MAR-INF") if path.is_dir())


def weigh(server: Server) -> tuple[float, int, int]:
    """RSS in MiB, threads and open files of the server process."""
    process = pathlib.Path(f"/proc/{server.process.pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), len(os.listdir(process / "fd"))


def pack(archive: pathlib.Path) -> None:
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("handler.py", NOOP)
        file.writestr(
            "MAR-INF/MANIFEST.json", '{"runtime": "python", "model": {"modelName": "m", "handler": "handler.py"}}'
        )


def ask(server: Server, path: str, body: bytes) -> bytes:
    return request(f"{server.addresses['inference']}/{path}", "POST", body)


def manage(server: Server, method: str, path: str) -> bytes:
    return request(f"{server.addresses['management']}/{path}", method, None)


def request(url: str, method: str, body: bytes | None) -> bytes:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, method=method), timeout=120) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {url}: {error.code} {error.read().decode()}") from error
