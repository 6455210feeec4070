"""A connection for threads that run no event loop: on a loop of its own, in a thread of its own.

Callers append their calls to a queue and wake the loop only if it is asleep, so that many calls of
many threads cost one wake-up and one write.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from jitney.handle.connection import Connection, ResultReceiver
from jitney.wire.address import Address

END_SECONDS = 5.0


class Background:
    """A connection that any thread may use."""

    def __init__(self, address: Address) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = Connection(address, self._loop)
        self._waiting: deque[Callable[[], None]] = deque()
        self._awake = False
        self._thread = threading.Thread(target=self._run, name="jitney-handles", daemon=True)
        self._thread.start()

    def send(self, receiver: ResultReceiver, head: bytes, body: bytes) -> None:
        """Begins a call; the receiver gets errors too."""
        self._do(lambda: self._send(receiver, head, body))

    def cancel(self, receiver: Any) -> None:
        """Cancels a call."""
        self._do(lambda: self._connection.cancel(receiver))

    def close(self) -> None:
        """Ends the connection and the thread; calls under way fail."""
        self._loop.call_soon_threadsafe(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join(END_SECONDS)

    def _do(self, task: Callable[[], None]) -> None:
        if self._loop.is_closed():
            raise RuntimeError("the session is closed")
        self._waiting.append(task)
        if not self._awake:  # Two threads may both see it asleep; one wake-up too many is harmless.
            self._awake = True
            self._loop.call_soon_threadsafe(self._work)

    def _work(self) -> None:
        self._awake = False  # First: a task that is added from now on wakes the loop again.
        while self._waiting:
            self._waiting.popleft()()

    def _send(self, receiver: ResultReceiver, head: bytes, body: bytes) -> None:
        try:
            self._connection.send(receiver, head, body)
        except Exception as error:
            receiver.failed(error)

    def _end(self) -> None:
        self._work()
        self._connection.close()
        self._loop.call_soon(self._loop.stop)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
