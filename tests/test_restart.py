"""A server takes the ports of the one before it: by `--handover`, or from a service manager. Nothing is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import grpc
import pytest
import requests

from harness.archives import Store
from harness.certificates import Authority
from harness.client import curl, later
from harness.gate import Gate
from harness.server import ASK_SECONDS, END_SECONDS, PORTS, Server
from harness.wait import until
from test_traffic import both_ready, put, versions
from test_traffic_restart import traffic

PAUSE_SECONDS = 0.2
LONG_PAUSE_SECONDS = 4
"""A connection that is idle for longer may end: its client hardly asks again."""
CLIENTS = 10
"""Together they ask 50 times a second."""
PING = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Ping"
LAUNCH = """
import fcntl, os, sys
numbers, names, *command = sys.argv[1:]
moved = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 100) for number in numbers.split(",")]
os.closerange(3, 100)
for place, number in enumerate(moved, start=3):
    os.dup2(number, place)
    os.close(number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(moved)), "LISTEN_FDNAMES": names}
os.execv(command[0], command)
"""
"""What a service manager does between fork and exec."""


class Line:
    """Servers that follow each other at the same ports."""

    def __init__(self, binary: Path, home: Path, *arguments: str | Path) -> None:
        held = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
        self.ports = [listener.getsockname()[1] for listener in held]
        for listener in held:
            listener.close()
        self.binary, self.home, self.arguments = binary, home, arguments
        self.path = home / "next"
        self.servers: list[Server] = []

    def make(self, *more: str | Path) -> Server:
        """The next one, not started yet."""
        arguments = ("serve", *self.arguments, "--handover", self.path, *more)
        server = Server(self.binary, self.home / f"server-{len(self.servers)}", arguments, wait_for_workers=False)
        for flag, port in zip(PORTS, self.ports, strict=True):
            server.arguments[server.arguments.index(flag) + 1] = str(port)
        self.servers.append(server)
        return server

    def start(self, *more: str | Path) -> Server:
        """The next one, once it has the ports."""
        return self.make(*more).started()

    def refused(self, *more: str | Path) -> Server:
        """One that cannot start."""
        server = self.make(*more)
        with pytest.raises(AssertionError, match="did not start"):
            server.started()
        return server


@pytest.fixture
def line(binary: Path, tmp_path: Path, store: Store) -> Iterator[Callable[..., Line]]:
    """Makes a line of servers; afterwards they are ended."""
    lines: list[Line] = []

    def line(*arguments: str | Path) -> Line:
        lines.append(Line(binary, tmp_path / "line", *(arguments or (store.mar("echo"),))))
        return lines[-1]

    yield line
    for made in lines:
        for server in made.servers:
            server.end()


class Clients:
    """50 requests a second: half of them with a connection each, half on connections that are kept, beside gRPC."""

    def __init__(self, server: Server, ports: list[int]) -> None:
        self.server, self.grpc_port = server, ports[3]
        self.over = threading.Event()
        self.outcomes: Counter[str] = Counter()
        kinds = [self.once, self.kept] * (CLIENTS // 2) + [self.streams]
        self.threads = [threading.Thread(target=kind) for kind in kinds]

    def __enter__(self) -> Clients:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    def ask(self, kind: str, ask: Callable[[], object]) -> None:
        """Asks until it is over, and counts what comes."""
        while not self.over.wait(PAUSE_SECONDS):
            try:
                said = ask()
            except (OSError, requests.RequestException, grpc.RpcError) as error:
                said = repr(error)
            self.outcomes[f"{kind} {said}"] += 1

    def once(self) -> None:
        """A connection per request."""
        self.ask("once", lambda: self.server.predict("echo", b"x").status_code)

    def kept(self) -> None:
        """One connection, until the server says that it closes it."""
        connection = HTTPConnection(*self.server.address, timeout=ASK_SECONDS)
        asked = time.monotonic()

        def once() -> int:
            connection.request("POST", "/predictions/echo", b"x")
            reply = connection.getresponse()
            reply.read()
            return reply.status

        def ask() -> int:
            nonlocal asked
            before, asked = asked, time.monotonic()
            try:
                return once()
            except OSError:
                if time.monotonic() - before < LONG_PAUSE_SECONDS:
                    raise
                # The machine had no time for this client, which must ask again on a new connection.
                connection.close()
                return once()

        self.ask("kept", ask)

    def streams(self) -> None:
        """One channel of gRPC."""
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            ping = channel.unary_unary(PING, request_serializer=bytes, response_deserializer=bytes)
            self.ask("grpc", lambda: b"Healthy" in ping(b"", timeout=ASK_SECONDS))


def restart(line: Line, times: int) -> None:
    """So many restarts under load, and nobody notices."""
    server = line.start()
    server.predict("echo", b"x")
    with Clients(server, line.ports) as clients:
        for _ in range(times):
            asked = clients.outcomes.total()
            until(lambda asked=asked: clients.outcomes.total() > asked + 2 * CLIENTS, "the load runs")
            last, server = server, line.start()
            assert last.wait() == 0, last.log
        asked = clients.outcomes.total()
        until(lambda: clients.outcomes.total() > asked + 2 * CLIENTS, "the last one serves")
    assert set(clients.outcomes) == {"once 200", "kept 200", "grpc True"}, clients.outcomes


def test_under_load_nobody_notices_a_restart(line: Callable[..., Line]) -> None:
    restart(line(), 2)


@pytest.mark.heavy
def test_under_load_nobody_notices_ten_restarts(line: Callable[..., Line]) -> None:
    restart(line(), 10)


def test_a_request_under_way_is_answered_by_the_server_that_has_it(
    line: Callable[..., Line], store: Store, tmp_path: Path
) -> None:
    made = line(store.mar("orders"))
    old, gate = made.start(), Gate(tmp_path)
    held = later(lambda: old.predict("orders", {"id": "held"} | gate.order))
    gate.wait()
    new = made.start()
    old.logged("no connection is accepted any more")
    assert new.predict("orders", {"id": "next"}).json()["id"] == "next"
    assert old.process.poll() is None and not held.done()
    gate.open()
    assert held.result().json()["id"] == "held"
    assert old.wait() == 0 and "drained" in old.log


def test_the_next_server_goes_on_with_shares_and_keeps_them(
    line: Callable[..., Line], store: Store, tmp_path: Path
) -> None:
    made = line(*(f"m={path}" for path in versions(store)), "--jobs-dir", tmp_path / "jobs")
    old = both_ready(made.start())
    first, second = ({"shares": {"1.0": share, "2.0": 100 - share}} for share in (25, 60))
    assert put(old, first).status_code == 200
    new = made.start()
    assert old.wait() == 0
    assert traffic(new) == first
    assert put(new, second).status_code == 200
    file = tmp_path / "jobs/traffic.json"
    until(lambda: json.loads(file.read_text())["models"]["m"]["traffic"] == second, "it has the file now")
    new.kill()
    assert traffic(both_ready(made.start())) == second


def test_a_server_goes_on_when_the_next_one_fails_to_load(line: Callable[..., Line], store: Store) -> None:
    made = line()
    old = made.start()
    broken = made.refused(store.mar("broken", source="import no_such_module"))
    assert "no_such_module" in broken.log
    assert old.predict("echo", b"x").content == b"x"
    assert made.start().predict("echo", b"y").content == b"y"
    assert old.wait() == 0


def test_the_next_server_says_so_when_memory_cannot_hold_both(line: Callable[..., Line], tmp_path: Path) -> None:
    made = line()
    with socket.socket(socket.AF_UNIX) as running:
        made.home.mkdir()
        running.bind(str(made.path))
        running.listen()
        new = later(made.refused)
        peer, _ = running.accept()
        # What a running server says first: its version, and the bytes that its workers use.
        peer.sendall(bytes([1]) + (1 << 60).to_bytes(8, "big"))
        assert "both servers cannot run at once" in new.result().log
        peer.close()
        assert made.servers[0].process.returncode == 1


def test_free_ports_cannot_be_handed_over(binary: Path, store: Store, tmp_path: Path) -> None:
    command = [binary, "serve", store.mar("echo"), "--port", "0", "--handover", tmp_path / "next"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 64 and "--handover needs ports with numbers" in done.stderr, done.stderr


def test_tls_goes_on_with_the_certificate_of_the_next_server(line: Callable[..., Line], tmp_path: Path) -> None:
    made = line()
    for name in ("first", "second"):
        authority = Authority(tmp_path / name)
        mine = authority.issue("server")
        server = made.start("--tls-cert", mine.cert, "--tls-key", mine.key)
        reply = curl("--cacert", authority.cert, "--data-binary", name, server.url("/predictions/echo"))
        assert (reply.status_code, reply.text) == (200, name)
    assert made.servers[0].wait() == 0


def lent(sockets: list[socket.socket], names: str, *command: str | Path, log: Path) -> subprocess.Popen[bytes]:
    """A server that gets these sockets as a service manager gives them."""
    numbers = [sock.fileno() for sock in sockets]
    launch = [sys.executable, "-c", LAUNCH, ",".join(map(str, numbers)), names, *map(str, command)]
    with log.open("wb") as out:
        return subprocess.Popen(launch, stdout=out, stderr=out, stdin=subprocess.DEVNULL, pass_fds=numbers)


def test_a_service_manager_lends_the_ports_and_keeps_them(binary: Path, store: Store, tmp_path: Path) -> None:
    public, private = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    address, file, log = public.getsockname(), tmp_path / "management", tmp_path / "log"
    private.bind(str(file))
    private.listen()
    free = [word for flag in PORTS[2:] for word in (flag, "0")]
    command = [binary, "serve", store.mar("echo"), "--port", str(address[1]), *free]
    with public, private:
        for turn in (b"one", b"two"):
            # It waits in the backlog until there is a server.
            asked = later(lambda turn=turn: echo(address, turn))
            server = lent([public, private], "jitney.socket:management", *command, log=log)
            try:
                assert asked.result() == turn, log.read_text()
                [model] = curl("--unix-socket", file, "http://localhost/models/echo").json()
                [worker] = model["workers"]
                files = [os.readlink(entry) for entry in Path(f"/proc/{worker['pid']}/fd").iterdir()]
                ports = {f"socket:[{os.fstat(sock.fileno()).st_ino}]" for sock in (public, private)}
                assert not ports & set(files), "a worker holds a port"
            finally:
                server.terminate()
                assert server.wait(END_SECONDS) == 0, log.read_text()
    assert file.exists(), "it is the manager's"


def echo(address: tuple[str, int], body: bytes) -> bytes:
    return requests.post("http://{}:{}/predictions/echo".format(*address), body, timeout=ASK_SECONDS).content


def test_a_socket_that_no_listener_takes_is_an_error_of_the_start(binary: Path, store: Store, tmp_path: Path) -> None:
    command, log = [binary, "serve", store.mar("echo"), "--port", "0"], tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = lent([other], "other", *command, log=log)
        assert server.wait(END_SECONDS) == 64
        assert f"this server has no port at 127.0.0.1:{other.getsockname()[1]}" in log.read_text()
