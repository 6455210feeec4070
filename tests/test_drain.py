"""The end of a server: readiness falls, everything admitted is answered, exit code 0, no process is left."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import requests

from harness.archives import Store
from harness.client import later, parse, read_all, request
from harness.gate import Gate
from harness.processes import marked
from harness.server import Server
from harness.wait import until

PATIENT = ("--drain-timeout", "600s")
"""A server that ends long before this did not wait for it."""


class Clients:
    """Threads with keep-alive connections that ask until the server does not let them in any more."""

    def __init__(self, server: Server, model: str, size: int) -> None:
        self.server, self.model = server, model
        self.outcomes: Counter[str] = Counter()
        self.answered: set[bytes] = set()
        self.wrong: list[str] = []
        self.threads = [threading.Thread(target=self.ask, args=(number,)) for number in range(size)]
        for thread in self.threads:
            thread.start()

    def ask(self, number: int) -> None:
        """One client: goes away when it is rejected, or when the port is closed."""
        connection = HTTPConnection(*self.server.address, timeout=120)
        for turn in range(1_000_000):
            body = b"%d-%d" % (number, turn)
            try:
                connection.request("POST", f"/predictions/{self.model}", body)
                reply = connection.getresponse()
                content = reply.read()
            except ConnectionRefusedError:
                return
            except (ConnectionError, HTTPException):
                # Keep-alive's old race: the server closed the idle connection while the request was on
                # its way, and it was not admitted. The ledger knows if that is not true.
                connection.close()
                self.outcomes["not admitted"] += 1
                continue
            self.outcomes[str(reply.status)] += 1
            if reply.status == 200:
                self.answered.add(content)
            if (reply.status, content) != (200, body) and not (reply.status == 503 and b"draining" in content):
                self.wrong.append(f"{body!r} got {reply.status} {content!r}")
            if reply.status == 503:
                return

    def join(self) -> None:
        """Until everybody has gone."""
        for thread in self.threads:
            thread.join()


GOAWAY = 7
"""The kind of the frame with which HTTP/2 ends a connection."""


class Streams:
    """An HTTP/2 connection on which `GET /ping` was answered, and the kinds of the frames that came."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = socket.create_connection(address, timeout=120)
        settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        # The method and the scheme by their numbers in HPACK's table, then the path and the authority as text.
        head = b"\x82\x86\x04\x05/ping\x01\x01t"
        headers = len(head).to_bytes(3, "big") + bytes([1, 5, 0, 0, 0, 1]) + head
        self.connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + headers)
        self.kinds: list[int] = []
        while 0 not in self.kinds:
            assert self.frame(), "it ended without data"

    def all(self) -> list[int]:
        """All frames, once the server has ended the connection."""
        with self.connection:
            while self.frame():
                pass
        return self.kinds

    def frame(self) -> bool:
        """Reads a frame, and answers a ping; false at the end."""
        head = self.connection.recv(9, socket.MSG_WAITALL)
        if len(head) < 9:
            return False
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        content = self.connection.recv(length, socket.MSG_WAITALL) if length else b""
        if kind == 6 and not flags & 1:
            self.connection.sendall(bytes([0, 0, 8, 6, 1, 0, 0, 0, 0]) + content)
        self.kinds.append(kind)
        return True


def test_under_load_everything_admitted_is_answered(start, store: Store, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    server = start("serve", store.mar("ledger"), "--batch-size", "8", "--workers", "2", env={"LEDGER": str(ledger)})
    clients = Clients(server, "ledger", 16)
    until(lambda: clients.outcomes["200"] > 500, "the load runs")
    server.terminate()
    assert server.wait() == 0
    clients.join()
    assert not clients.wrong, clients.wrong[:5]
    ran = {body for file in ledger.iterdir() for body in file.read_bytes().split()}
    assert ran == clients.answered, (
        f"{len(ran - clients.answered)} requests ran and were not answered: {clients.outcomes}"
    )
    assert not marked(server.mark), "no worker is left"
    assert "drained" in server.log and "not answered before the drain timeout" not in server.log


def test_queued_requests_are_answered_before_the_end(start, store: Store, tmp_path: Path) -> None:
    server, gate = start("serve", store.mar("orders")), Gate(tmp_path)
    held = later(lambda: server.predict("orders", {"id": "held"} | gate.order))
    gate.wait()
    queued = [later(lambda number=number: server.predict("orders", {"id": number})) for number in range(10)]
    until(lambda: server.metric("jitney_waiting", "orders") == 10, "ten wait")
    server.terminate()
    server.logged("draining")
    gate.open()
    assert held.result().json()["id"] == "held"
    assert [answer.result().json()["id"] for answer in queued] == list(range(10))
    assert server.wait() == 0


def test_readiness_falls_first_and_requests_are_served_until_the_ports_close(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--drain-delay", "6s")
    session = requests.Session()
    assert session.get(server.url("/ping"), timeout=120).json() == {"status": "Healthy"}
    server.terminate()
    until(lambda: session.get(server.url("/ping"), timeout=120).status_code == 500, "readiness falls")
    assert session.get(server.url("/ping"), timeout=120).json() == {"status": "Unhealthy"}
    assert session.get(server.url("/v2/health/live"), timeout=120).json() == {"live": True}, (
        "it lives, it is only not ready"
    )
    served = session.post(server.url("/predictions/echo"), data=b"x", timeout=120)
    assert served.status_code == 200, "a load balancer that has not noticed yet must not see errors"
    assert server.wait() == 0


def test_from_the_first_moment_of_the_drain_an_answer_ends_its_connection(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--drain-delay", "600s")
    plain, by_hyper = request("/predictions/echo", b"x"), request("/predictions/echo", b"x", "TE: trailers")
    with socket.create_connection(server.address, timeout=120) as kept:
        kept.sendall(plain)
        before = kept.recv(65536).lower()
        assert before.startswith(b"http/1.1 200") and b"connection: close" not in before
        server.terminate()
        server.logged("draining")
        kept.sendall(plain)
        (reply,) = parse(read_all(kept))
    assert (reply.status_code, reply.headers["connection"]) == (200, "close")
    for asked in (plain, by_hyper):
        with socket.create_connection(server.address, timeout=120) as opened:
            opened.sendall(asked)
            (reply,) = parse(read_all(opened))
        assert (reply.status_code, reply.headers["connection"]) == (200, "close")
    server.terminate()
    server.wait()


def test_from_the_first_moment_of_the_drain_http_2_says_goaway(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), "--drain-delay", "600s")
    used = Streams(server.address)
    server.terminate()
    server.logged("draining")
    assert GOAWAY in used.all(), "a connection of before, without another request"
    assert GOAWAY in Streams(server.address).all(), "a connection of the drain, after its first answer"
    server.terminate()
    server.wait()


def test_a_worker_that_dies_during_the_drain_is_replaced_for_what_was_admitted(
    start, store: Store, tmp_path: Path
) -> None:
    server, gate = start("serve", store.mar("orders")), Gate(tmp_path)
    held = later(lambda: server.predict("orders", {"id": "held"} | gate.order))
    gate.wait()
    pid = server.ready("orders").popitem()[1]
    server.terminate()
    server.logged("draining")
    os.kill(pid, signal.SIGKILL)
    gate.open()
    assert held.result().json()["id"] == "held"
    assert server.wait() == 0


def test_an_upload_that_was_not_complete_is_rejected_with_a_reason_and_not_left_hanging(start, store: Store) -> None:
    server = start("serve", store.mar("echo"))
    whole = request("/predictions/echo", b"x" * 100_000)
    with socket.create_connection(server.address, timeout=120) as connection:
        connection.sendall(whole[:50_000])
        read = "requestMemoryBytes"
        until(lambda: server.manage("GET", "/overview").json()["server"][read], "the server has begun to read it")
        server.terminate()
        server.logged("drained")
        connection.sendall(whole[50_000:])
        (reply,) = parse(read_all(connection))
    assert reply.status_code == 503 and "[reason: draining]" in reply.text
    assert int(reply.headers["retry-after"]) >= 1
    assert server.wait() == 0


def test_a_registration_under_way_does_not_hold_up_the_end(start, store: Store) -> None:
    archive = store.mar("slow_load", source="import time\ntime.sleep(600)\n")
    server = start("serve", store.mar("echo"), "--model-store", store.path, *PATIENT)
    registering = later(lambda: server.manage("POST", "/models", url=archive.name, initial_workers=1))
    until(lambda: server.manage("GET", "/models/slow_load").status_code == 200, "the registration is under way")
    server.terminate()
    assert server.wait() == 0
    assert registering.exception() is not None or registering.result().status_code != 200, "no false success"


def test_idle_connections_do_not_hold_up_the_end(start, store: Store) -> None:
    server = start("serve", store.mar("echo"), *PATIENT)
    sessions = [requests.Session() for _ in range(5)]
    for session in sessions:
        session.post(server.url("/predictions/echo"), data=b"x", timeout=120)
    server.terminate()
    assert server.wait() == 0


def test_a_hanging_handler_is_cut_off_at_the_drain_timeout(start, store: Store, tmp_path: Path) -> None:
    server, gate = start("serve", store.mar("orders"), "--drain-timeout", "1s"), Gate(tmp_path)
    hanging = later(lambda: server.predict("orders", gate.order))
    gate.wait()
    server.terminate()
    assert server.wait() == 0
    server.logged("not answered before the drain timeout")
    failed = hanging.exception()
    assert failed is not None or hanging.result().status_code == 503, "its client is told, or cut off"
    assert not server.orphans()


def test_a_second_signal_ends_the_server_on_the_spot(start, store: Store, tmp_path: Path) -> None:
    server, gate = start("serve", store.mar("orders"), *PATIENT), Gate(tmp_path)
    later(lambda: server.predict("orders", gate.order))
    gate.wait()
    server.terminate()
    server.logged("draining")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 130
    gate.open()
    assert not server.orphans()


def test_ctrl_c_drains_too(start, store: Store) -> None:
    server = start("serve", store.mar("echo"))
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 0
    assert "drained" in server.log


def test_a_signal_while_models_load_ends_the_server(start, store: Store) -> None:
    archive = store.mar("slow_load", source="import time\ntime.sleep(600)\n")
    server = start("serve", archive, *PATIENT, wait_for_workers=False)
    server.terminate()
    assert server.wait() == 0
