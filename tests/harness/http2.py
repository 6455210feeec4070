"""HTTP/2 by hand, for what no decent client sends: half a message on each of many streams of one connection."""

from __future__ import annotations

import re
import socket
import struct

from .client import SOCKET_SECONDS
from .server import Server

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
FRAME_BYTES_MAX = 16_384
PREDICTIONS = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"


class Http2:
    """One connection of a client."""

    def __init__(self, address: tuple[str, int], window: int = 2**31 - 1) -> None:
        self.socket = socket.create_connection(address, timeout=SOCKET_SECONDS)
        self.window = 65_535
        """What may be sent on the connection; each stream has what the server says first."""
        self.stream_window = 65_535
        self.windows: dict[int, int] = {}
        self.ended: dict[int, str] = {}
        """Streams that the server has ended, by reset or with trailers."""
        self.bodies: dict[int, bytes] = {}
        """What came of each answer."""
        self.goaway: int | None = None
        """The code with which the server said that it takes no more requests."""
        self.input = b""
        settings = struct.pack("!HI", 4, window)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, settings))
        if window > 65_535:
            self.socket.sendall(frame(WINDOW, 0, 0, struct.pack("!I", window - 65_535)))

    def open(self, stream: int, path: str = PREDICTIONS) -> None:
        """Begins a call."""
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "test",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, block(fields)))
        self.windows[stream] = self.stream_window

    def ask(self, stream: int, method: str, path: str, authority: str = "localhost", **headers: str) -> None:
        """Begins a REST request, which ends with its head if it is a GET."""
        fields = {":method": method, ":scheme": "http", ":path": path, ":authority": authority, **headers}
        flags = END_HEADERS | (END_STREAM if method == "GET" else 0)
        self.socket.sendall(frame(HEADERS, flags, stream, block(fields)))
        self.windows[stream] = self.stream_window

    def answer(self, stream: int) -> bytes:
        """The body of an answer, once all of it is here."""
        while stream not in self.ended:
            assert self.read(), "the connection ended"
        return self.bodies.get(stream, b"")

    def until_closed(self) -> None:
        """Reads until the server closes the connection."""
        try:
            while self.read():
                pass
        except ConnectionError:
            pass

    def send(self, stream: int, content: bytes, *, end: bool = False) -> bool:
        """Sends bytes of a call as fast as the server lets them in; false if it has ended the call."""
        rest = memoryview(content)
        while rest and stream not in self.ended:
            room = min(self.window, self.windows[stream], FRAME_BYTES_MAX)
            if room <= 0:
                assert self.read(), "the connection ended"
                continue
            piece, rest = rest[:room], rest[room:]
            self.window -= len(piece)
            self.windows[stream] -= len(piece)
            self.socket.sendall(frame(DATA, int(end and not rest), stream, bytes(piece)))
            self.read_ready()
        return stream not in self.ended

    def read_ready(self) -> None:
        """Reads what is there."""
        self.socket.setblocking(False)
        try:
            while self.read():
                pass
        except BlockingIOError:
            pass
        finally:
            self.socket.settimeout(SOCKET_SECONDS)

    def read(self) -> bool:
        """Reads once and takes in every frame that is complete; false at the end of the connection."""
        came = self.socket.recv(1 << 20)
        self.input += came
        while len(self.input) >= 9:
            length = int.from_bytes(self.input[:3], "big")
            if len(self.input) < 9 + length:
                break
            kind, flags, stream = self.input[3], self.input[4], int.from_bytes(self.input[5:9], "big")
            payload, self.input = self.input[9 : 9 + length], self.input[9 + length :]
            self.take(kind, flags, stream, payload)
        return bool(came)

    def take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Takes one frame in."""
        if kind == SETTINGS and not flags & 1:
            self.socket.sendall(frame(SETTINGS, 1, 0, b""))
            for name, value in struct.iter_unpack("!HI", payload):
                if name == 4:
                    self.stream_window = value
        elif kind == WINDOW and stream == 0:
            self.window += int.from_bytes(payload, "big")
        elif kind == WINDOW and stream in self.windows:
            self.windows[stream] += int.from_bytes(payload, "big")
        elif kind == PING and not flags & 1:
            self.socket.sendall(frame(PING, 1, 0, payload))
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        if kind == DATA:
            self.bodies[stream] = self.bodies.get(stream, b"") + payload
        if kind == RESET or (kind in (DATA, HEADERS) and flags & 1):
            self.ended[stream] = payload.decode("latin-1")

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def block(fields: dict[str, str]) -> bytes:
    """A block of headers, none of which is remembered."""
    return b"".join(b"\0" + literal(name) + literal(value) for name, value in fields.items())


def literal(text: str) -> bytes:
    """A text in a block of headers."""
    length, more = len(text), b""
    if length >= 127:
        rest, length = length - 127, 127
        while rest >= 128:
            more += bytes([rest % 128 + 128])
            rest //= 128
        more += bytes([rest])
    return bytes([length]) + more + text.encode()


def message_head(length: int) -> bytes:
    """What goes before a gRPC message."""
    return struct.pack("!BI", 0, length)


def grpc_address(server: Server) -> tuple[str, int]:
    """Where the server listens for gRPC."""
    host, port = re.search(r"^gRPC inference +(?:http://)?(\S+):(\d+)$", server.stdout, re.MULTILINE).groups()
    return host, int(port)
