"""Clients: the compiled generator `jitney bench`, and a few requests whose answers are looked at."""

from __future__ import annotations

import http.client
import json
import pathlib
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from server import BINARY, Server

TIMEOUT_SECONDS = 300
ASKERS = 8
CONNECTIONS_PER_THREAD = 128


def closed_loop(
    server: Server, bodies: pathlib.Path, content_type: str, connections: int, seconds: float, warm_up: float
) -> dict:
    """`jitney bench` with clients that wait for their answers. A request that fails ends the measurement."""
    return closed_loop_at(server.port(), bodies, content_type, connections, seconds, warm_up)


def closed_loop_at(
    port: int,
    bodies: pathlib.Path,
    content_type: str,
    connections: int,
    seconds: float,
    warm_up: float,
    path: str = "/predictions/bench",
) -> dict:
    """The same against a port."""
    threads = max(1, min(6, connections // CONNECTIONS_PER_THREAD))
    command = [
        BINARY,
        "bench",
        f"http://127.0.0.1:{port}{path}",
        "--connections",
        str(connections),
    ]
    command += ["--duration", f"{seconds}s", "--warm-up", f"{warm_up}s", "--timeout", f"{TIMEOUT_SECONDS}s"]
    command += ["--threads", str(threads), "--body-file", str(bodies), "--content-type", content_type]
    ended = subprocess.run([*command, "--json", "-", "--quiet"], capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(f"jitney bench: {ended.stderr[-2000:]}")
    report = json.loads(ended.stdout)
    total = report["total"]
    if total["answered"] != total["offered"] or total["rejected"] or total["expired"] or total["lost"]:
        bad = {key: total[key] for key in ("offered", "answered", "rejected", "reasons", "expired", "lost", "errors")}
        raise RuntimeError(f"requests failed: {bad}")
    return {
        "per_s": total["answered_per_s"],
        "mean_ms": total["answer_mean_ms"],
        "p50_ms": total["answer_p50_ms"],
        "p99_ms": total["answer_p99_ms"],
        "generator": {**report["generator"], "threads": threads},
    }


def answers(server: Server, bodies: list[bytes], content_type: str) -> list:
    """The answers to some bodies, sent by a few clients at a time so that they share batches."""

    with ThreadPoolExecutor(ASKERS) as clients:
        return list(clients.map(lambda body: json.loads(ask(server, body, content_type)[0]), bodies))


def ask(server: Server, body: bytes, content_type: str) -> tuple[bytes, str]:
    """The answer to a body, and what it says about its way."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port(), timeout=TIMEOUT_SECONDS)
    connection.request("POST", "/predictions/bench", body, {"Content-Type": content_type})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    if reply.status != 200:
        raise RuntimeError(f"a request was answered with {reply.status}: {text[:500]!r}")
    return text, reply.headers.get("Server-Timing", "")


def check(server: Server, bodies: list[bytes], content_type: str, right: Callable[[int, object], bool]) -> None:
    """Ends the measurement unless all answers are right."""
    wrong = [(at, it) for at, it in enumerate(answers(server, bodies, content_type)) if not right(at, it)]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(bodies)} answers are wrong, such as that to body {wrong[0]}")
