"""One socket to a server: upgrades from HTTP, then splits the stream into frames.

Apart from `connection`, which knows calls and outlives it: a wire is used once, and reports nothing
after its end.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from jitney.call.errors import disconnected, remote_error
from jitney.handle.frames import FrameBuffer, Received
from jitney.wire.address import Address

WRITE_BUFFER_BYTES = 1 << 20
HEAD_BYTES_MAX = 64 << 10
CONNECT_SECONDS = 10.0
PATH = "/.jitney/handle"


MakeError = Callable[[], BaseException]
"""Makes the exception for one of the calls that fail with the wire."""


class Listener(Protocol):
    """Receives the events of a wire."""

    def ready(self) -> None:
        """Frames may be written now."""

    def received(self, received: Iterator[Received]) -> None:
        """Frames came."""

    def lost(self, why: MakeError) -> None:
        """The wire was closed, or could not be opened. Called once."""


class Wire(asyncio.Protocol):
    """One socket, from the connect to the close."""

    def __init__(self, address: Address, listener: Listener) -> None:
        self._address = address
        self._listener: Listener | None = listener
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer()
        self._head: bytes | None = b""
        """What came of the server's answer to the upgrade; None after it."""
        self.may_write = False

    async def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connects; the listener gets the outcome."""
        host, port, path, tls = self._address[:4]
        try:
            if path is not None:
                coming: Any = loop.create_unix_connection(lambda: self, path)
            else:
                name = self._address.server_name if tls is not None else None
                coming = loop.create_connection(lambda: self, host, port, ssl=tls, server_hostname=name)
            await asyncio.wait_for(coming, CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            reason = str(error) or type(error).__name__
            self._end(lambda: disconnected(f"cannot connect to {self._address}: {reason}"))

    def write(self, data: bytes) -> None:
        """Sends frames."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self, why: str = "the connection was closed") -> None:
        """Ends it."""
        if self._transport is not None:
            self._transport.close()
        self._end(lambda: disconnected(why))

    def _end(self, why: MakeError) -> None:
        listener, self._listener, self.may_write = self._listener, None, False
        if listener is not None:
            listener.lost(why)

    # -- callbacks of asyncio -------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Requests the upgrade to frames, unless the address says how else to begin."""
        self._transport = transport
        if self._listener is None:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self._address.greeting is not None:
            transport.write(self._address.greeting)
            self._begin_frames()
            return
        host, token = self._address.host, self._address.token
        lines = [f"GET {PATH} HTTP/1.1", f"Host: {host}", "Connection: upgrade", "Upgrade: jitney-handle/1"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        """Reads bytes of the server."""
        if self._head is not None:
            self._read_upgrade(data)
        else:
            self._read_frames(data)

    def pause_writing(self) -> None:
        """The server reads slowly; calls wait in this process."""
        self.may_write = False

    def resume_writing(self) -> None:
        """The server reads again."""
        if self._listener is not None and self._head is None:
            self.may_write = True
            self._listener.ready()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection was closed by either side."""
        self._end(lambda: disconnected(f"the connection to the server was lost{f': {exc}' if exc else ''}"))

    # -- bytes of the server --------------------------------------------------------------------

    def _read_upgrade(self, data: bytes) -> None:
        so_far = (self._head or b"") + data
        self._head = so_far
        head, end, rest = so_far.partition(b"\r\n\r\n")
        if not end:
            if len(so_far) > HEAD_BYTES_MAX:
                self.close("the server did not answer with HTTP")
            return
        if head.split(b" ", 2)[1:2] != [b"101"]:
            if len(rest) >= _body_bytes(head):
                self._upgrade_failed(head, rest)
            return
        self._begin_frames()
        if rest:
            self._read_frames(rest)

    def _begin_frames(self) -> None:
        self._head, self.may_write = None, True
        if self._listener is not None:
            self._listener.ready()

    def _upgrade_failed(self, head: bytes, body: bytes) -> None:
        """A wrong token or path: every call fails with the server's message."""
        try:
            error = json.loads(body)
            status, kind, message = int(error["code"]), str(error["type"]), str(error["message"])
            self._end(lambda: remote_error(status, kind, message, None))
        except (ValueError, KeyError, TypeError):
            line = head.partition(b"\r\n")[0].decode("latin-1")
            self._end(lambda: disconnected(f"the server does not offer handles: {line}"))
        self.close()

    def _read_frames(self, data: bytes) -> None:
        try:
            if self._listener is not None:
                self._listener.received(self._frames.feed(data))
        except Exception as error:
            self.close(f"the server broke the protocol: {error!r}")


def _body_bytes(head: bytes) -> int:
    """The length of an error's body, up to a limit."""
    found = re.search(rb"\r\ncontent-length: *(\d{1,9})", head, re.IGNORECASE)
    return min(int(found[1]), HEAD_BYTES_MAX) if found else 0
