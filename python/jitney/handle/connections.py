"""All connections of a session: one per event loop, and one in the background for threads without a loop."""

from __future__ import annotations

import asyncio
import ssl
import threading
import weakref
from typing import Any, NamedTuple

from jitney.client import Client
from jitney.handle.background import Background
from jitney.handle.connection import Connection
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
