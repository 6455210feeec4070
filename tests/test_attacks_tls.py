"""Attacks on TLS before anybody is known: what is no handshake ends, what never ends takes no place from others."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.archives import Store
from harness.certificates import Authority
from harness.client import SOCKET_SECONDS, curl, read_all
from harness.processes import resident_bytes
from harness.server import Server

LISTENERS = ("Inference", "Management", "Metrics", "gRPC inference", "gRPC management")
ALERT, CHANGE, HANDSHAKE, APPLICATION = 21, 20, 22, 23
SECRETS = b"root:", b"PRIVATE KEY"


def record(kind: int, content: bytes, claimed: int | None = None) -> bytes:
    """A record of TLS, which may claim another length than it has."""
    return struct.pack("!BHH", kind, 0x0303, len(content) if claimed is None else claimed) + content


HELLO = b"\1" + (200).to_bytes(3, "big") + b"\3\3" + bytes(198)
"""A client's hello that is none inside."""
ENDED = {
    "HTTP": b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "zeros": bytes(70_000),
    "a broken hello": record(HANDSHAKE, HELLO),
    "a hello of 16 MB": record(HANDSHAKE, b"\1\xff\xff\xff" + bytes(16_000)) * 300,
    "a hello in pieces of a byte": b"".join(record(HANDSHAKE, bytes([byte])) for byte in HELLO) * 20,
    "a record that is too long": record(HANDSHAKE, HELLO, 65_535) + bytes(65_535),
    "empty records": record(HANDSHAKE, b"") * 50_000,
    "changes of the cipher": record(CHANGE, b"\1") * 50_000,
    "warnings": record(ALERT, b"\1\0") * 50_000,
    "data before a key": record(APPLICATION, bytes(1000)) * 100,
    "a heartbeat": record(24, b"\1\xff\xff"),
    "SSL 2": b"\x80\x2e\1\3\1\0\x15\0\0\0\x10" + bytes(40),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(binary: Path, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home, own = tmp_path_factory.mktemp("tls"), authority.issue("server")
    flags = ["--tls-cert", own.cert, "--tls-key", own.key, "--max-connections", "100"]
    models = Store(home / "store").mar("echo")
    server = Server(binary, home / "server", ["serve", models, *flags], wait_for_workers=False)
    server.started().logged("model ready")
    yield server
    server.end()


def place(server: Server, listener: str) -> tuple[str, int]:
    host, port = re.search(rf"^{listener} +(?:https://)?(\S+):(\d+)$", server.stdout, re.MULTILINE).groups()
    return host, int(port)


def answers(server: Server, authority: Authority) -> bool:
    """Whether others are served."""
    return curl("--cacert", authority.cert, "-d", "x", server.url("/predictions/echo")).status_code == 200


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("said", ENDED)
def test_what_is_no_handshake_ends(server: Server, authority: Authority, listener: str, said: str) -> None:
    before = resident_bytes(server.pid)
    with socket.create_connection(place(server, listener), timeout=SOCKET_SECONDS) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(ENDED[said])
        told = read_all(connection)
    assert len(told) < 1000 and not any(secret in told for secret in SECRETS)
    assert resident_bytes(server.pid) - before < 32 << 20
    assert answers(server, authority)


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("half", [b"", b"\x16", record(HANDSHAKE, HELLO[:20], 200)], ids=["nothing", "a byte", "half"])
def test_half_handshakes_take_no_place_from_others(
    server: Server, authority: Authority, listener: str, half: bytes
) -> None:
    waiting = [socket.create_connection(place(server, listener), timeout=SOCKET_SECONDS) for _ in range(150)]
    for connection in waiting:
        with contextlib.suppress(ConnectionError):
            connection.sendall(half)
    assert answers(server, authority)
    assert curl("--cacert", authority.cert, server.url("/models", "management")).status_code == 200
    for connection in waiting:
        connection.close()


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_key_is_not_agreed_on_again(server: Server, authority: Authority, listener: str) -> None:
    context = ssl.create_default_context(cafile=authority.cert)
    plain = socket.create_connection(place(server, listener), timeout=SOCKET_SECONDS)
    with context.wrap_socket(plain, server_hostname="localhost") as secure:
        assert secure.version() == "TLSv1.3", "which knows no renegotiation"
        raw = socket.socket(fileno=secure.detach())
    with raw, contextlib.suppress(ConnectionError):
        raw.sendall(record(APPLICATION, bytes(100)) * 1000)
        raw.settimeout(SOCKET_SECONDS)
        read_all(raw)
    assert answers(server, authority)
