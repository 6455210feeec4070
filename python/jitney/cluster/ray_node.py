"""A worker on a node of a Ray cluster: its process, and the bridge between it and the server.

The process is the same as on the server's machine: it connects to a Unix socket with its token. What it says is passed
on over TCP with TLS, to a server that shows the one certificate that came with the order. A connection of its own tells
the server what the process prints and how it ends; when the server closes it, or is gone, the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

HEADER = struct.Struct("<IBBHQ")
HELLO = 1
PROTOCOL_VERSION = 3

CONNECT_SECONDS = 20.0
LINE_BYTES = 8 << 10
RELAY_BYTES = 256 << 10
CONNECTIONS_MAX = 64
"""Connections of the worker at a time: one for batches, a few for its own calls."""
EXIT_SECONDS = 2.0
SILENCE_SECONDS, QUESTIONS, LOST_MS = 2, 3, 5000
"""A silent server is asked whether it is there, and is lost when nothing came back for so long."""


class ServerAddress(NamedTuple):
    """Where the server listens, and the certificate that it must show."""

    host: str
    port: int
    certificate: str

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that notices within seconds when the server's machine is lost."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # Only this one certificate is trusted, whatever name it has.
        context.load_verify_locations(cadata=self.certificate)
        opening = asyncio.open_connection(self.host, self.port, ssl=context, limit=RELAY_BYTES)
        reader, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
        notice_loss(writer.get_extra_info("socket"))
        return reader, writer


def notice_loss(sock: Any) -> None:
    """Makes the kernel end the connection soon after the other machine has vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", SILENCE_SECONDS),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", QUESTIONS),
        ("TCP_USER_TIMEOUT", LOST_MS),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def hello(token: str) -> bytes:
    """The frame with which a connection introduces itself."""
    payload = json.dumps({"protocol": PROTOCOL_VERSION, "token": token}).encode()
    return HEADER.pack(len(payload), HELLO, 0, 0, 0) + payload


def run(server: ServerAddress, token: str, node: str, files: Callable[[], dict[str, str]]) -> int:
    """Holds one worker until it has ended, or until the server is gone; returns its exit status."""
    return asyncio.run(NodeWorker(server, node).run(token, files))


class NodeWorker:
    """One worker's process and connections."""

    def __init__(self, server: ServerAddress, node: str) -> None:
        self._server = server
        self._node = node
        self._bridges: set[asyncio.Task[None]] = set()
        self._outgoing: set[asyncio.Future[None]] = set()

    async def run(self, token: str, files: Callable[[], dict[str, str]]) -> int:
        """From the first connection to the last."""
        reader, self._writer = await self._server.connect()
        self._writer.write(hello(token))
        line = await reader.readline()
        if not line:
            return 0  # The server does not want this worker any more.
        order = json.loads(line)
        directory = tempfile.mkdtemp(prefix="jitney-worker-")
        try:
            try:
                found = await asyncio.get_running_loop().run_in_executor(None, files)
            except Exception as error:
                await self._say("stderr", f"node {self._node}: {type(error).__name__}: {error}")
                await self._say("exited", 1)
                return 1
            paths = {name: found.get(name) for name in ("model", "code")}
            await self._say("ready", {"node": self._node, **paths})
            return await self._hold(reader, order["token"], directory, found)
        finally:
            for bridge in self._bridges:
                bridge.cancel()
            self._writer.close()
            shutil.rmtree(directory, ignore_errors=True)

    async def _hold(self, reader: asyncio.StreamReader, token: str, directory: str, found: dict[str, str]) -> int:
        """Starts the process and waits for its end, or ends it with the server."""
        path = os.path.join(directory, "server.sock")
        server = await asyncio.start_unix_server(self._accept, path, limit=RELAY_BYTES)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-u", "-m", "jitney.worker",
            env=environment(path, token, found),
            cwd=found.get("model", directory),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
            start_new_session=True,
        )  # fmt: skip
        printing = [
            asyncio.ensure_future(self._forward(name, stream))
            for name, stream in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        ended = asyncio.ensure_future(process.wait())
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((ended, gone), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                end_group(process.pid)
            status = await ended
            end_group(process.pid)
            await asyncio.wait(printing, timeout=EXIT_SECONDS)
            # What it wrote last must be with the server before the server hears of its end.
            if self._outgoing:
                await asyncio.wait(set(self._outgoing), timeout=EXIT_SECONDS)
            if not gone.done():
                await self._say("exited", status)
            return status
        finally:
            end_group(process.pid)
            gone.cancel()
            for task in printing:
                task.cancel()
            server.close()

    async def _say(self, what: str, value: Any) -> None:
        self._writer.write(json.dumps({what: value}).encode() + b"\n")
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def _forward(self, name: str, stream: asyncio.StreamReader | None) -> None:
        """Passes on what the process prints, line by line; longer lines in pieces."""
        while stream is not None:
            try:
                line = await stream.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                line = error.partial
                stream = None
            except asyncio.LimitOverrunError as error:
                line = await stream.read(error.consumed or LINE_BYTES)
            if line:
                await self._say(name, line.decode("utf-8", "replace"))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection of the worker, bridged to the server."""
        task = asyncio.current_task()
        if task is None or len(self._bridges) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._bridges.add(task)
        try:
            there, thither = await self._server.connect()
            outgoing = asyncio.ensure_future(relay(reader, thither))
            self._outgoing.add(outgoing)
            try:
                await asyncio.gather(outgoing, relay(there, writer))
            finally:
                self._outgoing.discard(outgoing)
                thither.close()
        except (OSError, asyncio.TimeoutError):
            pass  # The end of one side is the end of the other.
        finally:
            writer.close()
            self._bridges.discard(task)


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes bytes on until their source ends; then the other side sees the end too."""
    # What was written is with the kernel before more is read. Not 0: an empty buffer of TLS would count as full.
    writer.transport.set_write_buffer_limits(high=1, low=0)
    while data := await reader.read(RELAY_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()


def environment(path: str, token: str, found: dict[str, str]) -> dict[str, str]:
    """The worker's: the node's own, with what the worker needs to find the server and its code."""
    parts = [found["packages"], os.environ.get("PYTHONPATH", ""), found.get("model", "")]
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {
        **own,
        "MALLOC_MMAP_THRESHOLD_": "33554432",
        "MALLOC_TRIM_THRESHOLD_": "67108864",
        "PYTHONPATH": os.pathsep.join(part for part in parts if part),
        "JITNEY_WORKER_SOCKET": path,
        "JITNEY_WORKER_TOKEN": token,
        "JITNEY_WORKER_PARENT": str(os.getpid()),
    }


def end_group(leader: int) -> None:
    """Ends a process and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
