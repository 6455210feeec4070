"""Clients that ask without a pause while a test looks at something else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from harness.server import ASK_SECONDS, Server


@contextmanager
def clients(server: Server, model: str, count: int, *, pause: float = 0.0) -> Iterator[None]:
    """So many clients that ask one request after another, with a pause between them."""
    over = threading.Event()

    def ask() -> None:
        with requests.Session() as session:
            while not over.wait(pause):
                session.post(server.url(f"/predictions/{model}"), data=b"x", timeout=ASK_SECONDS)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
