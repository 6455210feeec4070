"""Floods of HTTP/2 frames on every listener that speaks it: the one who sends them is cut off or slowed down, the
server holds no more memory afterwards, and others are answered."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREDICTIONS,
    RESET,
    SETTINGS,
    WINDOW,
    Http2,
    block,
    frame,
    literal,
)
from harness.processes import resident_bytes
from harness.server import ASK_SECONDS, Server
from harness.wait import until

GROWTH = 64 << 20
PRIORITY = 2
LISTENERS = ("Inference", "Management", "Metrics", "gRPC inference", "gRPC management")
KEPT, AGAIN = 0x40, 0xBE
"""A header that is remembered, and the one that was remembered last."""


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("floods")
    server = Server(binary, home / "server", ["serve", Store(home / "store").mar("echo"), "--io-threads", "1"])
    yield server.started()
    server.end()


def fields(listener: str, **more: str) -> dict[str, str]:
    """The head of a request that the listener would answer."""
    path = PREDICTIONS if listener.startswith("gRPC") else "/ping"
    head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers"}
    return {**head, "content-type": "application/grpc", **more}


def pieces(one: Callable[[int], bytes], count: int, at_once: int = 500) -> Iterator[bytes]:
    """Frames one after another, many in each write; the streams of a client have odd numbers."""
    for start in range(0, count, at_once):
        yield b"".join(one(number) for number in range(start, start + at_once))


def rapid_reset(listener: str) -> Iterator[bytes]:
    head = block(fields(listener))
    code = struct.pack("!I", 8)
    return pieces(lambda n: frame(HEADERS, 5, 2 * n + 1, head) + frame(RESET, 0, 2 * n + 1, code), 20_000)


def resets_by_the_server(listener: str) -> Iterator[bytes]:
    """A window that grows by nothing is a mistake for which the server has to reset the stream itself."""
    head, nothing = block(fields(listener)), struct.pack("!I", 0)
    return pieces(lambda n: frame(HEADERS, END_HEADERS, 2 * n + 1, head) + frame(WINDOW, 0, 2 * n + 1, nothing), 20_000)


def endless_head(listener: str) -> Iterator[bytes]:
    yield frame(HEADERS, END_STREAM, 1, block(fields(listener)))
    yield from pieces(lambda _: frame(CONTINUATION, 0, 1, b""), 100_000)


def long_head(listener: str) -> Iterator[bytes]:
    yield frame(HEADERS, END_STREAM, 1, block(fields(listener)))
    yield from pieces(lambda n: frame(CONTINUATION, 0, 1, block({f"x-{n}": "x" * 16_000})), 2000, 10)


def header_that_is_named_again(listener: str) -> Iterator[bytes]:
    """A byte each for a header of 4,000 bytes: 64 MB in one frame."""
    large = bytes([KEPT]) + literal("x-large") + literal("x" * 3900)
    for number in range(50):
        known = large if number == 0 else b""
        yield frame(HEADERS, 5, 2 * number + 1, block(fields(listener)) + known + bytes([AGAIN]) * 12_000)


def table_sizes(listener: str) -> Iterator[bytes]:
    """Changes of the table's size, each of which takes effect."""
    return pieces(lambda n: frame(HEADERS, 5, 2 * n + 1, b"\x20\x3f\xe1\x1f" * 4000 + block(fields(listener))), 50, 1)


ENDED = [rapid_reset, resets_by_the_server, endless_head, long_head]
"""Those for which the connection must end."""


def settings(_: str) -> Iterator[bytes]:
    return pieces(lambda n: frame(SETTINGS, 0, 0, struct.pack("!HI", 4, 65_535 + n % 2)), 20_000)


def pings(_: str) -> Iterator[bytes]:
    return pieces(lambda _: frame(PING, 0, 0, b"12345678"), 20_000)


def priorities(_: str) -> Iterator[bytes]:
    return pieces(lambda n: frame(PRIORITY, 0, 2 * n + 1, struct.pack("!IB", 0, 16)), 20_000)


def empty_data(listener: str) -> Iterator[bytes]:
    yield frame(HEADERS, END_HEADERS, 1, block(fields(listener)))
    yield from pieces(lambda _: frame(DATA, 0, 1, b""), 50_000)


BORNE = [header_that_is_named_again, table_sizes, settings, pings, priorities, empty_data]
"""Those that may be borne or ended: the client reads nothing meanwhile."""


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("flood", [*ENDED, *BORNE], ids=lambda flood: flood.__name__)
def test_a_flood_takes_nothing_from_others(server: Server, listener: str, flood: Callable) -> None:
    host, port = re.search(rf"^{listener} +(?:http://)?(\S+):(\d+)$", server.stdout, re.MULTILINE).groups()
    before = resident_bytes(server.pid)
    client = Http2((host, int(port)))
    client.read()
    client.socket.settimeout(ASK_SECONDS if flood in ENDED else 2)
    with contextlib.suppress(OSError):
        for one in flood(listener):
            client.socket.sendall(one)
    client.socket.settimeout(ASK_SECONDS)
    if flood in ENDED:
        client.until_closed()
    assert requests.get(server.url("/ping"), timeout=ASK_SECONDS).status_code == 200
    assert server.manage("GET", "/models").status_code == 200
    assert resident_bytes(server.pid) - before < GROWTH
    client.close()
    until(lambda: server.connections() == 0, "the connection is gone")
    assert server.predict("echo", b"x").content == b"x"
