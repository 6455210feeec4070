"""Clients that ask a model without a pause and check every answer: nothing may be lost, nothing may be wrong."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ASK_SECONDS = 120.0


class Tally:
    """What the clients saw."""

    def __init__(self) -> None:
        self.right = 0
        self.wrong: list[str] = []
        self.lost: list[str] = []
        self._lock = threading.Lock()

    def note(self, number: int, status: int, body: bytes) -> None:
        """One answer."""
        with self._lock:
            if status != 200:
                self.lost.append(f"{number}: {status} {body[:300]!r}")
            elif json.loads(body) != 2 * number:
                self.wrong.append(f"{number}: {body[:300]!r}")
            else:
                self.right += 1


@contextmanager
def checking_clients(address: tuple[str, int], path: str, count: int) -> Iterator[Tally]:
    """So many clients that send numbers, each once, and want them doubled."""
    tally, over, numbers = Tally(), threading.Event(), itertools.count()

    def ask() -> None:
        connection = http.client.HTTPConnection(*address, timeout=ASK_SECONDS)
        while not over.is_set():
            number = next(numbers)
            try:
                body = json.dumps({"number": number})
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                tally.note(number, answer.status, answer.read())
            except (OSError, http.client.HTTPException) as error:
                tally.lost.append(f"{number}: {error!r}")
                connection.close()
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield tally
    finally:
        over.set()
        for thread in threads:
            thread.join()
