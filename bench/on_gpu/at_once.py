"""A server that answers every request at once: what a generator can do at most.

Processes share one port; each reads whole requests and sends the same answer, without looking at them.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import re
import socket
from collections.abc import Iterator

PROCESSES = 4
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class AtOnce(asyncio.Protocol):
    """One connection: counts bytes until a request is whole, and answers it."""

    def __init__(self) -> None:
        self.head = b""
        self.missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the way back."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Takes a part of a request; a client of a closed loop sends one at a time."""
        if self.missing == 0:
            self.head += data
            head, end, body = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            found = LENGTH.search(head)
            self.head, self.missing, data = b"", int(found[1]) if found else 0, body
        self.missing -= len(data)
        if self.missing == 0:
            self.transport.write(ANSWER)


@contextlib.contextmanager
def serving() -> Iterator[int]:
    """The port at which it answers."""
    sockets = [listening(0)]
    port = sockets[0].getsockname()[1]
    sockets += [listening(port) for _ in range(PROCESSES - 1)]
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=answer, args=(sock,)) for sock in sockets]
    for process, sock in zip(processes, sockets):
        process.start()
        sock.close()
    try:
        yield port
    finally:
        for process in processes:
            process.terminate()
            process.join()


def listening(port: int) -> socket.socket:
    """A socket that shares its port."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(1024)
    return sock


def answer(sock: socket.socket) -> None:
    """One process."""

    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(AtOnce, sock=sock)
        await server.serve_forever()

    asyncio.run(forever())
