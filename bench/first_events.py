"""Clients that stream, and measure the time to the first event: `first_events.py PORT CLIENTS < requests.json`.

The requests are a list of bodies for `/v1/completions`; the times are printed as a list of milliseconds. A program of
its own, without large libraries, so that several can share the work and none waits for another.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

HEAD = "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def main() -> None:
    """Each client sends its share of the requests, one after another."""
    port, clients = map(int, sys.argv[1:])
    told = json.load(sys.stdin)

    def ask(requests: list[Any]) -> list[float]:
        return [first_event_ms(port, json.dumps(one).encode()) for one in requests]

    with ThreadPoolExecutor(clients) as threads:
        found = threads.map(ask, [told[at::clients] for at in range(clients)])
        print(json.dumps(list(itertools.chain.from_iterable(found))))


def first_event_ms(port: int, body: bytes) -> float:
    """The time to the first event of an answer, all of which is read."""
    with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
        started = time.perf_counter()
        connection.sendall(HEAD.format(len(body)).encode() + body)
        read, took = b"", 0.0
        while b"[DONE]" not in read[-64:]:
            more = connection.recv(1 << 16)
            if not more:
                raise RuntimeError(f"the stream broke off: {read[-500:]!r}")
            read += more
            took = took or (time.perf_counter() - started if b"data: " in read else 0.0)
    return took * 1e3


if __name__ == "__main__":
    main()
