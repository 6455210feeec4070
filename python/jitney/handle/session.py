"""A server as Python sees it: `jitney.connect` gives one, `model` a handle of what it serves.

It can be used from any thread and any event loop at the same time. Every loop has a connection of
its own, so that a call inside a loop never changes threads; all other threads share one, on a loop
in the background.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import weakref
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from jitney.handle.background import Background
from jitney.handle.connection import Connection
from jitney.handle.handle import Handle
from jitney.handle.wire import Address

PORTS = {"http": 80, "https": 443}


def connect(
    url: str,
    *,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    management_url: str | None = None,
    management_token: str | None = None,
) -> Session:
    """A server's inference address, as `http://127.0.0.1:8080`; nothing is sent before the first call.

    `token` is the inference key of a server that asks for one. `tls` is for `https://` addresses
    whose certificate the system does not know. `unix:/path` is a socket's file. `management_url` is
    for `Handle.configure`.
    """
    manager = Manager(management_url, management_token, tls) if management_url else None
    return Session(read_url(url, token, tls), manager)


def read_url(url: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> Address:
    """The address that a URL names."""
    if url.startswith("unix:"):
        return Address("localhost", 0, unquote(url[len("unix:") :]), None, token)
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is no address of a server; say http://host:port, https://host:port or unix:/path")
    if parts.scheme == "https":
        tls = tls or ssl.create_default_context()
    return Address(parts.hostname, parts.port or PORTS[parts.scheme], None, tls, token)


class Manager(NamedTuple):
    """Where models are managed."""

    url: str
    token: str | None = None
    tls: ssl.SSLContext | None = None


class Session:
    """A server's models. Close it, or use it in a `with`, to end its connections."""

    def __init__(self, address: Address, manager: Manager | None = None) -> None:
        self._address = address
        self._manager = manager
        self._lock = threading.Lock()
        self._connections: weakref.WeakKeyDictionary[Any, Connection] = weakref.WeakKeyDictionary()
        self._background: Background | None = None
        self._closed = False

    def model(self, name: str, version: str = "", *, encoding: str = "value") -> Handle:
        """A handle of a model, in its default version unless one is named.

        `encoding` says how a call's one argument travels to models that are not written with this
        package: as "json" or as plain "bytes".
        """
        return Handle(self, name, version, encoding=encoding)

    def configure(self, model: str, version: str, **options: Any) -> None:
        """Changes how batches of a model leave."""
        if self._manager is None:
            raise ValueError("tell jitney.connect where models are managed: management_url='http://host:8081'")
        from jitney.client import Client  # Few handles change a model.

        url, token, tls = self._manager
        with Client(url, token=token, tls=tls) as client:
            client.configure(model, version or None, **options)

    def connection(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """The connection of a loop, which is the running one."""
        connection = self._connections.get(loop)
        if connection is None:
            with self._lock:
                self._refuse_closed()
                connection = self._connections[loop] = Connection(self._address, loop)
        return connection

    def background(self) -> Background:
        """The connection of all threads that run no loop."""
        background = self._background
        if background is None:
            with self._lock:
                self._refuse_closed()
                background = self._background = self._background or Background(self._address)
        return background

    def close(self) -> None:
        """Ends every connection; calls under way fail."""
        with self._lock:
            self._closed = True
            background, self._background = self._background, None
            connections = list(self._connections.values())
            self._connections.clear()
        if background is not None:
            background.close()
        for connection in connections:
            if not connection.loop.is_closed():
                connection.loop.call_soon_threadsafe(connection.close)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the session is closed; make a new one with jitney.connect")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await asyncio.sleep(0)  # The running loop's own connection ends in its next turn.
