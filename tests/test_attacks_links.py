"""Attacks on the links between the server and its parts: the socket of workers, their calls, and the port on which
workers of a Ray cluster connect, whose side-car a script plays."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.client import SOCKET_SECONDS, read_all
from harness.processes import resident_bytes
from harness.server import ASK_SECONDS, Server
from harness.wait import until

HELLO, REPLY = 1, 6
GIGABYTE = 1 << 30
HTTP = b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n"
APP = """
import gc
import json
from pathlib import Path

import jitney


@jitney.model
def secret(text: str) -> str:
    return text


class Spy:
    '''Knows what every model can know: the address of the workers' socket, and its own right to call.'''

    other = jitney.depends(secret)

    @jitney.endpoint
    def address(self) -> list[str]:
        variables = Path("/proc/self/environ").read_bytes().split(b"\\0")
        found = dict(one.decode().partition("=")[::2] for one in variables if b"=" in one)
        tokens = {json.loads(one.greeting[16:])["token"] for one in held(self.other) if type(one).__name__ == "Address"}
        return [found["JITNEY_WORKER_SOCKET"], found["JITNEY_WORKER_TOKEN"], *tokens]


def held(handle: object) -> list[object]:
    '''What a handle knows, however deep.'''
    known = [handle]
    for _ in range(6):
        known += gc.get_referents(*known)
    return known
"""


def frame(kind: int, payload: bytes, claimed: int | None = None) -> bytes:
    """A frame of the worker protocol, which may claim to be longer than it is."""
    return struct.pack("<IBBHQ", len(payload) if claimed is None else claimed, kind, 0, 0, 0) + payload


def hello(**said: Any) -> bytes:
    return frame(HELLO, json.dumps({"protocol": 3, "pid": 1, **said}).encode())


STRANGERS = {
    "http": HTTP,
    "no frame": bytes(16),
    "no hello": frame(REPLY, b""),
    "no token": hello(),
    "a wrong token": hello(token="0" * 32),
    "a wrong token for calls": hello(token="0" * 32, role="calls"),
    "a role that there is not": hello(token="0" * 32, role="management"),
    "another protocol": frame(HELLO, b'{"protocol": 2, "token": ""}'),
    "no JSON": frame(HELLO, b"[" * 4000),
    "a gigabyte of hello": frame(HELLO, b"x", GIGABYTE),
    "a gigabyte of an answer": frame(REPLY, b"x", GIGABYTE),
}


def closed(connection: socket.socket, sent: bytes) -> bytes:
    """What comes until the server closes, which it does without being told that no more follows."""
    connection.settimeout(SOCKET_SECONDS)
    connection.sendall(sent)
    return read_all(connection)


@pytest.fixture(scope="module")
def served(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("links")
    (home / "app.py").write_text(APP)
    server = Server(binary, home / "server", ["serve", "app:Spy"], cwd=home)
    yield server.started()
    server.end()


@pytest.fixture(scope="module")
def known(served: Server) -> list[str]:
    """What the worker knows: path, its own token, its token for calls."""
    reply = requests.post(served.url("/Spy/address"), timeout=ASK_SECONDS)
    assert reply.status_code == 200, reply.text
    return reply.json()


@contextmanager
def unix(path: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        yield connection


@pytest.mark.parametrize("said", STRANGERS)
def test_the_socket_of_workers_tells_a_stranger_nothing(served: Server, known: list[str], said: str) -> None:
    with unix(known[0]) as connection:
        assert closed(connection, STRANGERS[said]) == b""
    assert requests.post(served.url("/secret"), json={"text": "x"}, timeout=ASK_SECONDS).status_code == 200


def test_a_worker_is_nobody_else_with_what_it_knows(served: Server, known: list[str]) -> None:
    path, own, *calls = known
    assert Path(path).parent.stat().st_mode & 0o077 == 0
    for said in [hello(token=own), hello(token=own, role="calls"), *(hello(token=one) for one in calls)]:
        with unix(path) as connection:
            assert closed(connection, said) == b"", "its token was used up, and one for calls is for calls"
    for token in calls:
        for sent in (HTTP, struct.pack("<IBBHQ", 0, 9, 0, 0, 1), struct.pack("<IBBHQ", 0, 3, 0, 0, 1)):
            with unix(path) as connection:
                assert closed(connection, hello(token=token, role="calls") + sent) == b"", "calls and nothing else"
    assert calls, "the test knows the token for calls"


SIDE_CAR = """#!{python}
import json, os, sys
if sys.argv[1:4] != ["-u", "-m", "jitney.cluster.ray_placement"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
said = {said!r}
for line in said:
    print(line, flush=True)
print(json.dumps({{"event": "ready", "address": "127.0.0.1", "ray": "played"}}), flush=True)
for line in sys.stdin:
    open({orders!r}, "a").write(line)
"""


@contextmanager
def cluster(start: Callable[..., Server], home: Path, *said: str) -> Iterator[tuple[Server, tuple[str, int], dict]]:
    """A server whose cluster is played: the address of its port for workers, and the order for the first one."""
    home.mkdir()
    orders, python = home / "orders", home / "python"
    python.write_text(SIDE_CAR.format(python=sys.executable, said=said, orders=str(orders)))
    python.chmod(0o755)
    (home / "app.py").write_text("import jitney\n\n\n@jitney.model\ndef echo(text: str) -> str:\n    return text\n")
    flags = ("--ray", "127.0.0.1:1", "--python", python, "--worker-host", "127.0.0.1")
    server = start("serve", "app:echo", *flags, cwd=home, wait_for_workers=False)
    until(lambda: orders.exists() and orders.read_text().endswith("\n"), "a worker is ordered")
    order = json.loads(orders.read_text().splitlines()[0])
    yield server, (order["server"]["host"], order["server"]["port"]), order


def secure(address: tuple[str, int], certificate: str) -> ssl.SSLSocket:
    """A connection as an actor makes it."""
    context = ssl.create_default_context(cadata=certificate)
    context.check_hostname = False
    return context.wrap_socket(socket.create_connection(address, timeout=SOCKET_SECONDS))


def test_whoever_reaches_the_port_of_remote_workers_gets_nowhere(start: Callable[..., Server], tmp_path: Path) -> None:
    with cluster(start, tmp_path / "cluster") as (server, address, order):
        before = resident_bytes(server.pid)
        certificate = order["server"]["certificate"]
        for said, sent in STRANGERS.items():
            with secure(address, certificate) as connection:
                assert closed(connection, sent) == b"", said
        with socket.create_connection(address) as plain:
            assert b"HTTP" not in closed(plain, HTTP), "without TLS nobody is heard"
        # Gigabytes, of which some really come.
        many = [secure(address, certificate) for _ in range(16)]
        for connection in many:
            with pytest.raises(OSError):
                connection.sendall(frame(HELLO, b"x", GIGABYTE))
                for _ in range(256):
                    connection.sendall(bytes(1 << 20))
            connection.close()
        assert resident_bytes(server.pid) - before < 64 << 20
        with secure(address, certificate) as actor:
            actor.sendall(hello(token=order["token"]))
            assert "token" in json.loads(actor.recv(4096)), "the one that was ordered is let in"


def test_silent_strangers_keep_no_worker_out(start: Callable[..., Server], tmp_path: Path) -> None:
    with cluster(start, tmp_path / "cluster") as (_, address, order):
        silent = [socket.create_connection(address, timeout=SOCKET_SECONDS) for _ in range(80)]
        with secure(address, order["server"]["certificate"]) as actor:
            actor.sendall(hello(token=order["token"]))
            assert "token" in json.loads(actor.recv(4096))
        for connection in silent:
            connection.close()


def test_a_side_car_that_says_anything_harms_nobody(start: Callable[..., Server], tmp_path: Path) -> None:
    lies = ['{"event": "placed", "id": 7, "node": "n"}', '{"event": "ended", "id": 99, "why": "w"}', "[" * 5000]
    with cluster(start, tmp_path / "cluster", *lies, "x" * 3_000_000, *['{"event": "?"}'] * 2000) as (server, _, _):
        assert server.manage("GET", "/models").status_code == 200
        assert len(server.log) < 1_000_000
