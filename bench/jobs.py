"""Jobs: `python bench/run.py submissions lost shared`.

`submissions` is how many jobs a second are kept, each durable before it is answered. `lost` submits 100,000 jobs while
server and workers are killed by turns, and compares every result. `shared` does so with two servers on one PostgreSQL,
of which one is killed. BENCH_SHARE=0.01 makes a try-out with fewer jobs.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness.postgres import Postgres
from server import BINARY, Server

SHARE = float(os.environ.get("BENCH_SHARE", "1"))
SECONDS = max(3, int(20 * SHARE))
JOBS = int(100_000 * SHARE)
KILLS = 5
CLIENTS = 16
ECHO = """
def handle(data, context):
    return [row.get("body") or row.get("data") for row in data or []]
"""


def submissions() -> None:
    """Jobs kept a second, by how many clients submit at a time; they are not run meanwhile but for one."""
    print(f"\n## Jobs kept a second, with fsync, {SECONDS} s each, bodies of 1 KiB\n")
    print("| clients | jobs/s | p50 ms | p99 ms |")
    print("|---|---|---|---|")
    for clients in (1, 16, 64, 256):
        with tempfile.TemporaryDirectory(prefix="jitney-bench-jobs-", dir=".") as folder:
            flags = ["--jobs-dir", folder, "--jobs-count", "10000000", "--jobs-size", "100GiB", "--jobs-parallel", "1"]
            with Server(ECHO, *flags) as server:
                server.wait_until_ready()
                url = f"{server.addresses['inference']}/predictions/bench"
                load = ["-c", str(clients), "-d", f"{SECONDS}s", "-H", "Prefer: respond-async", "-b", "x" * 1024]
                command = [BINARY, "bench", url, *load, "--json", "-", "--quiet"]
                total = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["total"]
                assert set(total["statuses"]) == {"202"}, total["statuses"]
                took = f"{total['answer_p50_ms']:.1f} | {total['answer_p99_ms']:.1f}"
                print(f"| {clients} | {total['answered_per_s']:.0f} | {took} |", flush=True)


class Account:
    """Which jobs were submitted, and what each must answer."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.repeated = 0
        self.port = 0
        """Of the server of the moment; 0 while there is none."""

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, bytes]:
        """Asks until somebody answers: a server that was killed is followed by another one."""
        while True:
            port = self.port
            try:
                connection = getattr(LOCAL, "connection", None)
                if connection is None or LOCAL.port != port:
                    LOCAL.connection = connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                    LOCAL.port = port
                connection.request(method, path, body, headers)
                reply = connection.getresponse()
                return reply.status, reply.headers.get("location", ""), reply.read()
            except (OSError, http.client.HTTPException):
                LOCAL.connection = None
                self.repeated += 1
                time.sleep(0.05)

    def submit(self, number: int) -> None:
        """A job by a key of its own, so that one whose 202 was lost is found again."""
        body = b"%d" % number
        headers = {"Prefer": "respond-async", "Idempotency-Key": str(number)}
        while True:
            status, location, text = self.request("POST", "/predictions/bench", body, **headers)
            if status == 202:
                self.kept[location] = body
                return
            assert status == 503, text
            time.sleep(0.1)

    def result(self, path: str) -> str:
        """What became of a job."""
        while True:
            status, _, body = self.request("GET", f"{path}/result?wait=30s")
            if status not in (409, 503):
                break
        if status == 404:
            return "lost"
        return "answered" if (status, body) == (200, self.kept[path]) else f"differs: {status} {body[:80]!r}"


LOCAL = threading.local()


def lost() -> None:
    """Every job has its answer, whoever is killed."""
    print(f"\n## {JOBS} jobs, {KILLS} SIGKILLs of the server and {KILLS} of workers\n")
    account, began = Account(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jitney-bench-jobs-", dir=".") as folder:
        flags = ["--jobs-dir", folder, "--jobs-count", str(JOBS + 1), "--workers", "2", "--batch-size", "32"]
        server = Server(ECHO, *flags).__enter__()
        account.port = server.port()
        with ThreadPoolExecutor(CLIENTS) as pool:
            made = [pool.submit(account.submit, number) for number in range(JOBS)]
            for turn in range(1, 2 * KILLS + 1):
                while sum(one.done() for one in made) < JOBS * turn // (2 * KILLS + 1):
                    time.sleep(0.05)
                if turn % 2:
                    server.wait_until_ready()
                    os.kill(worker(server), signal.SIGKILL)
                else:
                    server = replaced(server, flags)
                    account.port = server.port()
            [one.result() for one in made]
            submitted = time.monotonic() - began
            became = list(pool.map(account.result, list(account.kept)))
        took = time.monotonic() - began
        server.__exit__()
    counts = {word: became.count(word) for word in sorted(set(became))}
    print(
        f"{len(account.kept)} jobs kept in {submitted:.0f} s, {account.repeated} requests repeated; after {took:.0f} s: {counts}"
    )
    assert counts == {"answered": JOBS}, "some are lost or differ"


def shared() -> None:
    """The same of two servers that share a database, of which one is killed halfway."""
    print(f"\n## {JOBS} jobs of two servers on one PostgreSQL, one killed\n")
    database, began = Postgres(), time.monotonic()
    flags = [*map(str, database.flags), "--jobs-count", str(JOBS + 1), "--workers", "2", "--batch-size", "32"]
    servers = [Server(ECHO, *flags).__enter__() for _ in range(2)]
    accounts = [Account(), Account()]
    for account, server in zip(accounts, servers, strict=True):
        account.port = server.port()
    with ThreadPoolExecutor(CLIENTS) as pool:
        made = [pool.submit(accounts[number % 2].submit, number) for number in range(JOBS)]
        while sum(one.done() for one in made) < JOBS // 2:
            time.sleep(0.05)
        servers[0].process.kill()
        servers[0].process.wait()
        accounts[0].port = accounts[1].port
        [one.result() for one in made]
        submitted = time.monotonic() - began
        became = [word for account in accounts for word in pool.map(account.result, list(account.kept))]
    took = time.monotonic() - began
    for server in servers:
        server.__exit__()
    database.end()
    counts = {word: became.count(word) for word in sorted(set(became))}
    print(f"{len(became)} jobs kept in {submitted:.0f} s; after {took:.0f} s: {counts}")
    assert counts == {"answered": JOBS}, "some are lost or differ"


def worker(server: Server) -> int:
    """The process of a worker that is ready."""
    while True:
        workers = server.ask("/models/bench")[0]["workers"]
        ready = [one["pid"] for one in workers if one["status"] == "READY" and one.get("pid")]
        if ready:
            return ready[0]
        time.sleep(0.05)


def replaced(server: Server, flags: list[str]) -> Server:
    """Kills a server and starts another one in the same folder."""
    server.process.kill()
    server.process.wait()
    server.__exit__()
    return Server(ECHO, *flags).__enter__()
