"""All connections of a session: one per event loop, and one in the background for threads without a loop.

That one is on a loop and in a thread of its own. Callers append their calls to a queue and wake the loop only if it is
asleep, so that many calls of many threads cost one wake-up and one write."""

from __future__ import annotations

import asyncio
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from jitney.client import Client
from jitney.handle.connection import Connection, ResultReceiver
from jitney.machine.process import is_interactive
from jitney.wire.address import Address


class Manager(NamedTuple):
    """Where models are managed."""

    url: str
    token: str | None = None
    tls: ssl.SSLContext | None = None


class Connections:
    """The ways to one server. Closing it ends them all."""

    def __init__(self, address: Address, manager: Manager | None = None) -> None:
        self._address = address
        self._manager = manager
        self._lock = threading.Lock()
        self._connections: weakref.WeakKeyDictionary[Any, Connection] = weakref.WeakKeyDictionary()
        self._latest: Connection | None = None
        """The one that was used last: most programs have one loop."""
        self._background: Background | None = None
        self._closed = False
        self.prefers_background = is_interactive()
        """Whether calls inside an event loop use the background too. The loop of a notebook runs in the thread of its
        cells, so that a cell which waits for an answer would wait for itself."""

    def configure(self, model: str, version: str, **options: Any) -> None:
        """Changes the batching of a model."""
        if self._manager is None:
            raise ValueError(
                "changing a model needs the management address: jitney.connect(..., management_url='http://host:8081')"
            )
        url, token, tls = self._manager
        with Client(url, token=token, tls=tls) as client:
            client.configure(model, version or None, **options)

    def connection(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """The connection of a loop, which is the running one."""
        latest = self._latest
        if latest is not None and latest.loop is loop:
            return latest
        connection = self._connections.get(loop)
        if connection is None:
            with self._lock:
                self._check_open()
                connection = self._connections[loop] = Connection(self._address, loop)
        self._latest = connection
        return connection

    def background(self) -> Background:
        """The connection of all threads that run no loop."""
        background = self._background
        if background is None:
            with self._lock:
                self._check_open()
                background = self._background = self._background or Background(self._address)
        return background

    def close(self) -> None:
        """Ends every connection; calls under way fail."""
        with self._lock:
            self._closed = True
            self._latest = None
            background, self._background = self._background, None
            connections = list(self._connections.values())
            self._connections.clear()
        if background is not None:
            background.close()
        for connection in connections:
            if not connection.loop.is_closed():
                connection.loop.call_soon_threadsafe(connection.close)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the session is closed; make a new one with jitney.connect")


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
