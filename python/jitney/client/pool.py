"""HTTP/1.1 over asyncio's streams: just what a client of this server needs.

Connections are kept open and used again, the last one first; there are never more than the pool's
size, and a request that finds all of them busy waits for one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from jitney.client.requests import ClientRequest, Reply, Unreachable
from jitney.wire.address import Address

HEAD_BYTES_MAX = 128 << 10
READ_BYTES = 64 << 10


class PooledConnection(NamedTuple):
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Pool:
    """The connections to one address."""

    def __init__(self, address: Address, size: int) -> None:
        if address.unix_path is not None:
            raise ValueError("this client speaks TCP; use jitney.connect for unix: addresses")
        self._address = address
        self._room = asyncio.Semaphore(size)
        self._idle: list[PooledConnection] = []

    @contextlib.asynccontextmanager
    async def ask(self, request: ClientRequest) -> AsyncIterator[Exchange]:
        """Sends a request; the connection is free again after the block, if its answer was read."""
        async with self._room:
            exchange = await self._begin(request)
            try:
                yield exchange
            finally:
                if exchange.reusable:
                    self._idle.append(exchange.link)
                else:
                    exchange.link.writer.close()

    def close(self) -> None:
        """Closes the idle ones."""
        while self._idle:
            self._idle.pop().writer.close()

    async def _begin(self, request: ClientRequest) -> Exchange:
        """A kept connection may have been closed meanwhile, which is seen only when it is used."""
        while self._idle:
            link = self._idle.pop()
            try:
                return await self._send(request, link)
            except (ConnectionError, asyncio.IncompleteReadError):
                link.writer.close()
        try:
            link = PooledConnection(
                *await asyncio.open_connection(
                    self._address.host, self._address.port, ssl=self._address.tls, limit=HEAD_BYTES_MAX
                )
            )
        except OSError as error:
            raise Unreachable(str(error)) from error
        try:
            return await self._send(request, link)
        except asyncio.IncompleteReadError:
            link.writer.close()
            raise ConnectionError("the server closed the connection") from None
        except BaseException:
            link.writer.close()
            raise

    async def _send(self, request: ClientRequest, link: PooledConnection) -> Exchange:
        headers = {"Host": f"{self._address.host}:{self._address.port}", **request.headers}
        headers["Content-Length"] = str(len(request.body))
        if self._address.token:
            headers["Authorization"] = f"Bearer {self._address.token}"
        lines = [f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header holds a line break")
        link.writer.write("\r\n".join([*lines, "", ""]).encode() + request.body)
        await link.writer.drain()
        head = (await link.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *fields = head.split("\r\n")
        pairs = (line.partition(":") for line in fields if line)
        return Exchange(link, int(status.split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in pairs})


class Exchange:
    """An answer whose head was read; the body follows."""

    def __init__(self, link: PooledConnection, status: int, headers: dict[str, str]) -> None:
        self.link, self.status, self.headers = link, status, headers
        self.reusable = False
        """Whether the next request may use the connection."""

    async def whole(self) -> Reply:
        """The answer with all of its body."""
        body = b"".join([piece async for piece in self.pieces()])
        return Reply(self.status, self.headers, body)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes: chunk by chunk, or as much as was announced."""
        reader = self.link.reader
        try:
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    yield await reader.readexactly(size)
                    await reader.readexactly(2)
                await reader.readuntil(b"\r\n")
            elif "content-length" in self.headers:
                left = int(self.headers["content-length"])
                while left:
                    piece = await reader.read(min(left, READ_BYTES))
                    if not piece:
                        raise ConnectionError("the answer was cut short")
                    left -= len(piece)
                    yield piece
            else:
                while piece := await reader.read(READ_BYTES):
                    yield piece
                return
        except asyncio.IncompleteReadError:
            raise ConnectionError("the answer was cut short") from None
        self.reusable = self.headers.get("connection", "").lower() != "close"
