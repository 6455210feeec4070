"""Counts the instructions of the hot paths, and fails when one costs more than the recorded figure allows.

    make instructions           compares with bench/instructions.json (part of `make test-all`)
    make record-instructions    writes the figures anew, after a change that is worth its price

Counts by `valgrind --tool=callgrind` barely depend on the machine and not on its load. Each figure is what one more
request costs: the difference between a run with twice the requests and one with the requests, divided by their number.

- `batcher open`, `closed`, `overload`: the scripts of crates/batcher/examples/cost.rs;
- `serve`: the server process of `jitney serve` per REST prediction, with a handler that does nothing, over one
  connection, one request after the other; the worker is not counted;
- `hit`: the same as `serve` for a model with a cache, which has the answer;
- `ping`: `GET /ping` with the same body to the same server: what any answer costs;
- `torchserve`: the same as `serve` for `jitney torchserve`, which writes its access log.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

from callgrind import hide_auxiliary_vector  # noqa: E402
from handlers import NOOP  # noqa: E402
from harness.archives import Store  # noqa: E402
from harness.client import request  # noqa: E402
from harness.server import FREE_ADDRESSES, Server  # noqa: E402
from harness.wait import until  # noqa: E402

RECORDED = ROOT / "bench" / "instructions.json"
TOLERANCE = 0.03
EVENTS = 20_000
"""Requests of a batcher's script: exact, so few are enough."""
REQUESTS = 2_000
"""Requests to a server: what it does beside them, once or by the clock, must not show."""
BODY = b'{"inputs": [1.5, 2.5, 3.5, 4.5], "name": "sensor-17", "unit": "celsius", "tags": ["a", "b", "c", 4]}'
PREDICTION = request("/predictions/bench", BODY, "Content-Type: application/json")
PING = PREDICTION.replace(b"POST /predictions/bench ", b"GET /ping ")
SECONDS = 300.0
POLL_SECONDS = 0.2
"""Seldom: what is asked before the model is there counts too."""

CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")


def collected(log: str) -> int:
    """The count that callgrind writes at the end."""
    found = re.findall(r"Collected : (\d+)", log)
    if len(found) != 1:
        raise SystemExit(f"callgrind wrote no count:\n{log[-2000:]}")
    return int(found[0])


def batcher(script: str, requests: int) -> int:
    """Instructions of one of the batcher's scripts."""
    command = [*CALLGRIND, os.environ["JITNEY_COST"], script, str(requests)]
    return collected(subprocess.run(command, capture_output=True, text=True, check=True).stderr)


def serve(requests: int, message: bytes = PREDICTION) -> int:
    """Instructions of `jitney serve` with so many requests, by itself predictions."""
    with tempfile.TemporaryDirectory(prefix="jitney-count-") as folder:
        model = Store(Path(folder, "store")).mar("bench", source=NOOP)
        return server(Path(folder), ["serve", model], requests, message)


def hit(requests: int) -> int:
    """The same for predictions that a cache answers."""
    with tempfile.TemporaryDirectory(prefix="jitney-count-") as folder:
        model = Store(Path(folder, "store")).mar("bench", source=NOOP)
        config = Path(folder, "jitney.yaml")
        config.write_text(f"models: [{{path: {model}, cache: {{ttl: 1h}}}}]\n")
        return server(Path(folder), ["serve", "--config", config], requests)


def torchserve(requests: int) -> int:
    """Instructions of `jitney torchserve` with so many predictions."""
    with tempfile.TemporaryDirectory(prefix="jitney-count-") as folder:
        store = Store(Path(folder, "store"))
        store.mar("bench", source=NOOP)
        config = Path(folder, "config.properties")
        config.write_text(FREE_ADDRESSES + "default_workers_per_model=1\n")
        flags = ["--foreground", "--disable-token-auth", "--model-store", store.path, "--models", "bench=bench.mar"]
        return server(Path(folder), ["torchserve", "--start", *flags, "--ts-config", config], requests)


def server(folder: Path, arguments: list[str | Path], requests: int, message: bytes = PREDICTION) -> int:
    """Instructions of a server from its start to its end, with so many requests in between."""
    under = (*CALLGRIND, f"--log-file={folder}/callgrind.%p")
    binary = Path(os.environ["JITNEY_BIN"]).resolve()
    home = folder / "home"
    running = Server(binary, home, arguments, under=under, wait_for_workers=False, start_seconds=SECONDS)
    running.started()
    try:
        send(running.address, requests, message)
        running.terminate()
        running.wait(SECONDS)
    finally:
        running.end()
    return collected((folder / f"callgrind.{running.pid}").read_text())


def send(address: tuple[str, int], requests: int, message: bytes) -> None:
    """Sends the requests over one connection, each whole and after the answer to the one before."""
    with socket.create_connection(address, timeout=SECONDS) as connection:
        until(lambda: ask(connection, PREDICTION) == 200, "the model answers", SECONDS, POLL_SECONDS)
        for _ in range(requests):
            if (status := ask(connection, message)) != 200:
                raise SystemExit(f"a request failed with {status}")


def ask(connection: socket.socket, message: bytes) -> int:
    """One request and its answer's status."""
    connection.sendall(message)
    answer = b""
    while not (ended := re.search(rb"\r\ncontent-length: (\d+)\r\n.*?\r\n\r\n", answer, re.DOTALL | re.IGNORECASE)):
        answer += connection.recv(65536)
    while len(answer) < ended.end() + int(ended[1]):
        answer += connection.recv(65536)
    return int(answer.split()[1])


MEASURES: dict[str, tuple[Callable[[int], int], int]] = {
    "batcher open": (lambda requests: batcher("open", requests), EVENTS),
    "batcher closed": (lambda requests: batcher("closed", requests), EVENTS),
    "batcher overload": (lambda requests: batcher("overload", requests), EVENTS),
    "serve": (serve, REQUESTS),
    "hit": (hit, REQUESTS),
    "ping": (lambda requests: serve(requests, PING), REQUESTS),
    "torchserve": (torchserve, REQUESTS),
}


def per_request(measure: Callable[[int], int], requests: int) -> int:
    """What one more request costs."""
    return round((measure(2 * requests) - measure(requests)) / requests)


def verdict(figures: dict[str, int], recorded: dict[str, int], tolerance: float = TOLERANCE) -> list[str]:
    """What costs too much, and what was never recorded."""
    problems = []
    for name, count in figures.items():
        if name not in recorded:
            problems.append(f"{name}: no figure is recorded")
        elif count > recorded[name] * (1 + tolerance):
            problems.append(
                f"{name}: {count} instructions per request, {count / recorded[name] - 1:+.1%} of the recorded"
            )
    return problems


def main() -> int:
    """Measures, compares or records; 1 when a figure is above what is allowed."""
    parser = argparse.ArgumentParser(description="Count the instructions of the hot paths.")
    parser.add_argument("--record", action="store_true", help="write the figures instead of comparing them")
    parser.add_argument("--file", type=Path, default=RECORDED, help="the recorded figures")
    parser.add_argument("names", nargs="*", help=f"what to measure: {', '.join(MEASURES)} (default: all)")
    options = parser.parse_args()
    hide_auxiliary_vector()
    # On one processor server, worker and client take turns in the same way every time.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    recorded = json.loads(options.file.read_text()) if options.file.exists() else {}
    figures = {}
    for name in options.names or MEASURES:
        figures[name] = per_request(*MEASURES[name])
        before = f", recorded {recorded[name]} ({figures[name] / recorded[name] - 1:+.2%})" if name in recorded else ""
        print(f"{name}: {figures[name]} instructions per request{before}", flush=True)
    if options.record:
        options.file.write_text(json.dumps(recorded | figures, indent=2) + "\n")
        return 0
    problems = verdict(figures, recorded)
    if problems:
        print("\n".join(problems), file=sys.stderr)
        print("Make it cheaper, or record the new price: make record-instructions", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
