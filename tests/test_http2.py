"""HTTP/2 on the REST ports: cleartext and TLS, the same answers and the same limits as HTTP/1.1."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.certificates import self_signed
from harness.client import SOCKET_SECONDS, curl, later
from harness.gate import Gate
from harness.http2 import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREDICTIONS,
    RESET,
    Http2,
    block,
    frame,
    grpc_address,
)
from harness.processes import resident_bytes
from harness.server import Server
from harness.wait import until

LIMIT = 16 << 20
BODY = 3_000_000
BODIES = 20
NO_ERROR = "\0\0\0\0"
"""With which a stream is reset whose answer is complete."""
HEAD = {":method": "GET", ":scheme": "http", ":path": "/ping", ":authority": "localhost"}


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with little memory for requests, whose clients must read their answers soon."""
    home = tmp_path_factory.mktemp("http2")
    limits = ["--max-request-memory", str(LIMIT), "--write-timeout", "1s", "--access-log", "--io-threads", "1"]
    server = Server(binary, home / "server", ["serve", Store(home / "store").mar("echo"), *limits])
    yield server.started()
    server.end()


def ping(server: Server) -> bool:
    """Whether the server answers others."""
    return requests.get(server.url("/ping"), timeout=SOCKET_SECONDS).status_code == 200


def test_curl_speaks_http2_without_asking(server: Server, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"x" * 200_000)
    body = ["-H", "Content-Type: text/plain", "--data-binary", f"@{tmp_path / 'body'}"]
    reply = curl("--http2-prior-knowledge", *body, server.url("/predictions/echo"))
    assert (reply.status_code, reply.content) == (200, b"x" * 200_000)
    assert "server-timing" in reply.headers and "x-request-id" in reply.headers
    assert "connection" not in reply.headers and "transfer-encoding" not in reply.headers
    server.logged('"POST /predictions/echo HTTP/2.0" 200')
    error = curl("--http2-prior-knowledge", "-d", "x", server.url("/predictions/ghost"))
    assert (error.status_code, error.json()["type"]) == (404, "ModelNotFoundException")
    head = curl("--http2-prior-knowledge", "--head", server.url("/ping"))
    assert (head.content, head.status_code) == (b"", curl("--head", server.url("/ping")).status_code)


def test_an_upgrade_is_not_needed_and_does_no_harm(server: Server) -> None:
    """curl asks for `Upgrade: h2c`, is not offered it, and goes on."""
    assert curl("--http2", "-d", "x", server.url("/predictions/echo")).status_code == 200


def test_the_first_bytes_may_come_one_by_one(server: Server) -> None:
    connection = socket.create_connection(server.address, timeout=SOCKET_SECONDS)
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":
        connection.sendall(bytes([byte]))
    connection.sendall(frame(4, 0, 0, b"") + frame(HEADERS, END_HEADERS | END_STREAM, 1, block(HEAD)))
    answer = b""
    while b'"Healthy"' not in answer:
        piece = connection.recv(65536)
        assert piece, answer
        answer += piece
    connection.close()


def test_many_requests_share_a_connection(server: Server) -> None:
    client = Http2(server.address)
    client.read()
    for stream in range(1, 200, 2):
        client.ask(stream, "POST", "/predictions/echo")
        client.send(stream, b"%d" % stream * 1000, end=True)
    for stream in range(1, 200, 2):
        assert client.answer(stream) == b"%d" % stream * 1000
    client.close()


@pytest.mark.skipif(not shutil.which("h2load"), reason="needs h2load")
def test_h2load_completes(server: Server, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"x" * 1000)
    load = ["h2load", "-n", "2000", "-c", "4", "-m", "20", "-d", tmp_path / "body", server.url("/predictions/echo")]
    done = subprocess.run(load, capture_output=True, text=True, timeout=120, check=True)
    assert re.search(r"2000 succeeded, 0 failed, 0 errored", done.stdout), done.stdout
    assert "h2c" in done.stdout, done.stdout


def test_a_body_that_is_too_large_costs_only_its_stream(server: Server) -> None:
    client = Http2(server.address)
    client.read()
    client.ask(1, "POST", "/predictions/echo")
    client.send(1, b"x" * 7_000_000, end=True)
    assert json.loads(client.answer(1))["code"] == 413
    client.ask(3, "POST", "/predictions/echo", **{"content-length": "7000000"})
    assert json.loads(client.answer(3))["code"] == 413
    client.ask(5, "POST", "/predictions/echo")
    client.send(5, b"y", end=True)
    assert client.answer(5) == b"y"
    client.close()


def test_an_answer_that_comes_before_a_small_body_does_not_break_it_off(server: Server) -> None:
    client = Http2(server.address)
    client.read()
    client.ask(1, "POST", "/jobs")
    assert json.loads(client.answer(1))["code"] == 405
    client.ask(3, "GET", "/ping")
    client.answer(3)
    assert client.ended[1] != NO_ERROR, "curl 7.88 loses an answer whose stream is reset while it sends"
    client.send(1, b"late", end=True)
    client.ask(5, "POST", "/predictions/echo")
    client.send(5, b"y", end=True)
    assert client.answer(5) == b"y"
    client.close()


def test_half_sent_bodies_of_one_connection_stay_within_the_memory(server: Server) -> None:
    client = Http2(server.address)
    client.read()
    streams = range(1, 2 * BODIES, 2)
    for stream in streams:
        client.ask(stream, "POST", "/predictions/echo")
        client.send(stream, b"x" * (BODY - 1000))
    until(lambda: client.read_ready() or len(client.ended) >= BODIES - 8, "those without room are told")
    refused = [json.loads(client.bodies[stream]) for stream in client.ended if client.bodies.get(stream)]
    assert refused and all(problem["code"] == 503 and "no_room" in problem["message"] for problem in refused)
    until(lambda: server.predict("echo", b"y" * BODY).status_code == 200, "a new client is served")
    client.close()


def long_head(stream: int, flags: int, fields: dict[str, str]) -> bytes:
    """A head in as many frames as it needs."""
    text = block(fields)
    pieces = [text[at : at + 16_384] for at in range(0, len(text), 16_384)]
    frames = [frame(CONTINUATION if at else HEADERS, 0 if at else flags, stream, it) for at, it in enumerate(pieces)]
    return b"".join(frames) + frame(CONTINUATION, END_HEADERS, stream, b"")


@pytest.mark.parametrize("protocol", ["REST", "gRPC"])
def test_heads_whose_bodies_do_not_come_stay_within_the_memory(server: Server, protocol: str) -> None:
    """Of eight times as much as there is room for, most is refused at once, and others are served."""
    before = resident_bytes(server.pid)
    address, path, length, streams = server.address, "/predictions/echo", 100_000, 128
    if protocol == "gRPC":
        address, path, length, streams = grpc_address(server), PREDICTIONS, 12_000, 1_024
    fields = {**HEAD, ":method": "POST", ":path": path, "content-type": "application/grpc", "x-long": "x" * length}
    clients = [Http2(address) for _ in range(8 * LIMIT // (length * streams) + 1)]
    numbers = range(1, 2 * streams, 2)

    @contextlib.contextmanager
    def may_be_cut(client: Http2) -> Iterator[None]:
        """A client that answers no ping while the others have their turn loses all of its requests."""
        try:
            yield
        except ConnectionError:
            client.ended = dict.fromkeys(numbers, "")

    for client in clients:
        client.read()
        with may_be_cut(client):
            for stream in numbers:
                client.socket.sendall(long_head(stream, 0, fields))
                client.read_ready()
    held, sent = LIMIT // length, len(clients) * streams

    def refused() -> int:
        for client in clients:
            with may_be_cut(client):
                client.read_ready()
        return sum(len(client.ended) for client in clients)

    until(lambda: refused() >= sent - held, "those without room are told")
    assert resident_bytes(server.pid) - before < 3 * LIMIT
    assert ping(server)
    for client in clients:
        client.close()
    until(lambda: server.predict("echo", b"y" * BODY).status_code == 200, "a new client is served")


def test_heads_have_the_limits_of_http1(server: Server) -> None:
    client = Http2(server.address)
    client.read()
    client.ask(1, "GET", "/ping", **{"x-long": "x" * 10_000})
    assert b"Healthy" in client.answer(1)
    client.ask(3, "GET", "/ping", **{f"x-{number}": "1" for number in range(101)})
    assert json.loads(client.answer(3))["code"] == 431
    client.socket.sendall(long_head(5, END_STREAM, {**HEAD, "x-long": "x" * 200_000}))
    # Told by HTTP/2 itself, without a body, or by the end of the connection.
    with contextlib.suppress(AssertionError, ConnectionError):
        assert client.answer(5) == b""
    client.close()
    assert ping(server)


def test_a_foreign_name_of_the_server_is_refused_on_management(server: Server) -> None:
    host, _, port = server.urls["management"].removeprefix("http://").rpartition(":")
    client = Http2((host, int(port)))
    client.read()
    client.ask(1, "GET", "/models", authority="evil.example")
    assert json.loads(client.answer(1))["code"] == 403
    client.ask(3, "GET", "/models", authority=f"localhost:{port}")
    assert "models" in json.loads(client.answer(3))
    client.ask(5, "GET", "/models", authority=f"localhost:{port}", host="evil.example")
    assert json.loads(client.answer(5))["code"] == 400
    client.close()


def flooded(server: Server, frames: Iterator[bytes]) -> Http2:
    """A connection on which these were sent, as far as the server took them."""
    client = Http2(server.address)
    client.read()
    with contextlib.suppress(ConnectionError):
        for one in frames:
            client.socket.sendall(one)
    return client


def test_floods_end_their_connection_and_nothing_else(server: Server) -> None:
    before = resident_bytes(server.pid)
    head = block(HEAD)
    resets = (
        frame(HEADERS, END_HEADERS, stream, head) + frame(RESET, 0, stream, b"\0\0\0\x08")
        for start in range(1, 20_000, 200)
        for stream in range(start, start + 200, 2)
    )
    batches = (b"".join(next(resets, b"") for _ in range(500)) for _ in range(20))
    flooded(server, batches).until_closed()
    first = frame(HEADERS, END_STREAM, 1, head)
    endless = (first if number == 0 else frame(CONTINUATION, 0, 1, b"") for number in range(200_000))
    flooded(server, endless).until_closed()
    long = block({"x-long": "x" * 16_000})
    endless = (first if number == 0 else frame(CONTINUATION, 0, 1, long) for number in range(2_000))
    flooded(server, endless).until_closed()
    pings = flooded(server, (frame(PING, 0, 0, b"12345678") * 1000 for _ in range(20)))
    assert ping(server)
    pings.close()
    assert resident_bytes(server.pid) - before < 64 << 20


def test_a_client_that_does_not_read_is_cut(server: Server) -> None:
    """A stream without a window holds its answer for no longer than the write timeout."""
    client = Http2(server.address, window=0)
    client.read()
    client.ask(1, "GET", "/ping")
    client.until_closed()
    assert client.bodies.get(1, b"") == b""


def test_streams_under_way_are_answered_when_the_server_ends(start, store: Store, tmp_path: Path) -> None:
    server, gate = start("serve", store.mar("orders")), Gate(tmp_path)
    client = Http2(server.address)
    client.read()
    client.ask(1, "POST", "/predictions/orders", **{"content-type": "application/json"})
    client.send(1, json.dumps(gate.order).encode(), end=True)
    gate.wait()
    server.process.send_signal(signal.SIGTERM)
    while client.goaway is None:
        assert client.read(), "the connection ended"
    assert client.goaway == 0
    gate.open()
    assert json.loads(client.answer(1))
    client.until_closed()
    server.wait()


def test_busy_connections_make_room(start, store: Store, tmp_path: Path) -> None:
    server, gate = start("serve", store.mar("orders"), "--max-connections", "1", "--io-threads", "1"), Gate(tmp_path)
    client = Http2(server.address)
    client.read()
    client.ask(1, "POST", "/predictions/orders", **{"content-type": "application/json"})
    client.send(1, json.dumps(gate.order).encode(), end=True)
    gate.wait()
    waiting = [later(lambda: server.predict("orders", {"id": 1})) for _ in range(3)]
    gate.open()
    assert json.loads(client.answer(1))
    client.until_closed()
    assert [one.result().status_code for one in waiting] == [200] * 3


def test_tls_offers_both(start, store: Store, tmp_path: Path) -> None:
    own = self_signed(tmp_path)
    flags = ("--tls-cert", own.cert, "--tls-key", own.key)
    server = start("serve", store.mar("echo"), *flags, wait_for_workers=False)
    models = server.url("/models/echo", "management")
    until(lambda: "READY" in curl("--cacert", own.cert, models).text, "the worker is ready")
    for flag, version in (("--http2", "2"), ("--http1.1", "1.1")):
        command = ["curl", "--silent", "--cacert", own.cert, flag, "-d", "x=1", "-w", "\n%{http_version}"]
        done = subprocess.run([*command, server.url("/predictions/echo")], capture_output=True, timeout=120, check=True)
        assert done.stdout.decode().splitlines()[-1] == version
