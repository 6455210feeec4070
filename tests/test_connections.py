"""Connections that fit the machine: idle ones make room, management stays reachable, logs stay short."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from pathlib import Path

import requests

from harness.archives import Store
from harness.client import SOCKET_SECONDS, later, parse, raw, request
from harness.gate import Gate
from harness.processes import open_files
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"

PRINTER = """
def handle(data, context):
    if data:
        print("first\\x1b[31m\\rsecond\\tthird\\u2028fourth", flush=True)
    return ["<script>"] * len(data or [])
"""


class KeepAlive:
    """A client that keeps its connection after an answer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=SOCKET_SECONDS)

    def ping(self) -> bytes:
        """The head of the answer to a request."""
        self.socket.sendall(PING)
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.endswith(b"}\n"):
            piece = self.socket.recv(65536)
            assert piece, f"the connection ended after {answer!r}"
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return answer.partition(b"\r\n\r\n")[0].lower()

    def is_closed(self) -> bool:
        """Whether the server has closed the connection."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1) == b""
        except BlockingIOError:
            return False


def pinged(server: Server) -> KeepAlive:
    client = KeepAlive(server.address)
    client.ping()
    return client


def test_idle_clients_take_nothing_from_others(start, store: Store) -> None:
    """More idle clients than there are descriptors for: everything else goes on."""
    server = start("serve", store.mar("echo"), open_files_max=256)
    idle = [pinged(server) for _ in range(300)]
    assert server.manage("GET", "/models").status_code == 200
    assert server.predict("echo", b"new").content == b"new"
    ((worker, pid),) = server.ready("echo").items()
    os.kill(pid, signal.SIGKILL)
    until(lambda: server.ready("echo").get(worker, pid) != pid, "the worker is replaced")
    assert server.predict("echo", b"again").content == b"again"
    assert len(idle) == 300 and open_files(server.pid) < 256
    assert "cannot accept a connection" not in server.log


def test_the_limit_of_open_files_is_raised_for_the_server_alone(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), under=["prlimit", "--nofile=200:400"])
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (400, 400)
    ((_, worker),) = server.ready("echo").items()
    assert resource.prlimit(worker, resource.RLIMIT_NOFILE) == (200, 400)
    server.logged("open_files=400")


def test_silent_clients_make_room_too(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), open_files_max=128)
    silent = [socket.create_connection(server.address) for _ in range(100)]
    assert server.predict("echo", b"served").content == b"served"
    assert len(silent) == 100 and "cannot accept a connection" not in server.log


def test_the_client_that_was_idle_longest_is_closed(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--max-connections", "3", "--io-threads", "1")
    idle = [pinged(server) for _ in range(3)]
    until(lambda: pinged(server) and any(client.is_closed() for client in idle), "a client is closed")
    assert idle[0].is_closed()


def test_busy_clients_are_told_to_close_where_others_wait(start, store: Store, tmp_path: Path) -> None:
    server, gate = start("serve", store.mar("orders"), "--max-connections", "1", "--io-threads", "1"), Gate(tmp_path)
    session = requests.Session()
    held = later(lambda: session.post(server.url("/predictions/orders"), json=gate.order, timeout=120))
    gate.wait()
    waiting = [later(lambda: server.predict("orders", {"id": 1})) for _ in range(3)]
    until(lambda: server.connections() == 2, "there is no room for the others")  # One more than the limit is taken.
    gate.open()
    assert held.result().headers.get("connection") == "close"
    assert [one.result().status_code for one in waiting] == [200] * 3


def test_the_log_of_malformed_requests_is_limited(start, store: Store) -> None:
    server = start("serve", store.mar("echo"))
    began = time.monotonic()
    for _ in range(100):
        raw(server.address, b"GARBAGE\r\n\r\n")
    seconds = time.monotonic() - began
    server.logged("not valid HTTP")
    assert server.log.count("not valid HTTP") <= seconds + 1


def test_answers_have_a_type_that_no_browser_guesses(start, store: Store) -> None:
    server = start("serve", store.mar("typed", source=PRINTER))
    (reply,) = parse(raw(server.address, request("/predictions/typed", b"x", "Connection: close")))
    assert reply.text == "<script>"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    (bad,) = parse(raw(server.address, b"GARBAGE\r\n\r\n"))
    assert bad.headers["x-content-type-options"] == "nosniff"


def test_nobody_writes_a_line_of_the_log_but_the_server(start, store: Store, tmp_path: Path) -> None:
    store.mar("printer", source=PRINTER)
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + "default_workers_per_model=1\n")
    flags = ["--foreground", "--disable-token-auth", "--enable-model-api", "--model-store", store.path]
    server = start("torchserve", "--start", *flags, "--models", "printer=printer.mar", "--ts-config", config)
    answer = server.predict("printer", b"x")
    assert "content-type" not in answer.headers and answer.headers["x-content-type-options"] == "nosniff"
    server.logged("first\\x1b[31m\\rsecond\tthird\\u2028fourth")
    assert server.manage("POST", "/models", url="a\n2026-01-01 FORGED.mar\x1b[31m").status_code >= 400
    server.logged("FORGED")
    assert not [line for line in server.log.splitlines() if line.startswith("2026-01-01 FORGED")]
    assert "\x1b" not in server.log
