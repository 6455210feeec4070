"""CPU time a worker spends per request: `python tests/bench_worker.py [batch size] [batches] [part of a name]`.

A forked child runs the real loop over a socket pair with a handler that does next to nothing;
its own CPU time (user and system, start-up taken off) is divided by the requests served.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import wire

from jitney.worker.loop import serve

HANDLER = """
def handle(data, context):
    if data is None:
        return None
    {touch}
    return [str(len(r.get("body") or b"")) for r in data]
"""
NO_OP, JSON = "pass", "application/json"
EACH_HEADER = "[context.get_request_header(i, 'x-op') for i in range(len(data))]"
DEFINITION = """
import jitney

@jitney.batch(max_batch_size=4096)
def call({parameters}) -> list:
    return [1] * len({first})
"""


def handler(touch: str) -> str:
    return HANDLER.format(touch=touch)


def definition(first: str, more: str = "") -> str:
    return DEFINITION.format(first=first, parameters=f"{first}: list{more}")


STEPS = """
ANSWER = {"tabby": 0.4096637964248657, "tiger_cat": 0.3467036485671997, "lynx": 0.0239195823, "bow": 0.01, "x": 0.01}

class Steps:
    def batches_at_a_time(self):
        return 3

    def takes_views(self):
        return %s

    def begin(self, data, context):
        return data

    def launch(self, data, context):
        return data

    def finish(self, data, context):
        return [ANSWER] * len(data)

    def handle(self, data, context):
        return [ANSWER] * len(data)
"""
TYPED = ", name: list[str], unit: list[str], tags: list"
IMAGE = "image/jpeg"
"""The content type of bodies of 50 KB; all others are small."""
CASES = [  # name, the model, content type, 0 for empty batches
    ("no-op, JSON body", handler(NO_OP), JSON, 1),
    ("no-op, raw body", handler(NO_OP), "application/octet-stream", 1),
    ("one header of the batch", handler("context.get_request_header(0, 'explain')"), JSON, 1),
    ("one header of each request", handler(EACH_HEADER), JSON, 1),
    ("definition, the body as one argument", definition("body"), JSON, 1),
    ("definition, four arguments with types", definition("inputs", TYPED), JSON, 1),
    ("images in a bytearray each, answers in JSON", STEPS % False, IMAGE, 1),
    ("images as views, answers in JSON", STEPS % True, IMAGE, 1),
    ("the loop alone", handler(NO_OP), JSON, 0),
]
ROUNDS = 7
BODY = b'{"inputs": [1.5, 2.5, 3.5, 4.5], "name": "sensor-17", "unit": "celsius", "tags": ["a", "b", "c", 4]}'
HEADERS = [
    ("Host", "127.0.0.1:8080"), ("User-Agent", "bench/1.0"), ("Accept", "*/*"), ("Accept-Encoding", "gzip, deflate"),
    ("Content-Type", "application/json"), ("Content-Length", "100"), ("url_path", ""), ("explain", "False"),
]  # fmt: skip


def worker_process(sock: socket.socket) -> None:
    status = 1
    try:
        status = serve(sock)
    finally:
        os._exit(status)


def cpu_seconds(pid: int) -> float:
    """Of all its threads, which live as long as the worker."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def measure(source: str, content_type: str, size: int, batches: int, **fields: object) -> list[float]:
    """Runs one worker; returns its CPU per batch for each round."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        worker_process(theirs)
    theirs.close()
    server = wire.Server(ours)
    with tempfile.TemporaryDirectory() as model_dir:
        with open(os.path.join(model_dir, "noop.py"), "w") as file:
            file.write(source)
        if "jitney" in source:
            fields["model_yaml_config"] = {"jitney": {"object": "noop:call", "directory": model_dir}}
        server.load(model_dir, "noop.py", **fields)
        server.read_control(wire.LOADED)
    request_id = "0f8fad5b-d9cb-469f-a165-70867728950e"
    body = bytes(50_000) if content_type == IMAGE else BODY
    data = wire.batch([wire.item([("body", content_type, body)], HEADERS, request_id)] * size)
    rounds = [measure_round(server, pid, data, batches) for _ in range(ROUNDS)]
    server.send(wire.frame(wire.STOP))
    os.waitpid(pid, 0)
    return rounds


def measure_round(server: wire.Server, pid: int, data: bytes, batches: int) -> float:
    """Microseconds of worker CPU per batch."""
    before = cpu_seconds(pid)
    for _ in range(batches):
        server.send(data)
        server.read_answer()
    return (cpu_seconds(pid) - before) * 1e6 / batches


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    batches = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    for name, source, content_type, count in CASES:
        if only not in name:
            continue
        rounds = measure(source, content_type, count * size, batches)
        per = max(count * size, 1)
        unit = "request" if count else "batch"
        best, middle = min(rounds) / per, statistics.median(rounds) / per
        case = f"{ROUNDS} x {batches} batches of {count * size}"
        print(f"{name}: best {best:.2f}, median {middle:.2f} us of worker CPU per {unit} ({case})")


if __name__ == "__main__":
    main()
