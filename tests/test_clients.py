"""Clients that go away: mid-head, mid-body, before their answer. A request whose client is gone does not run."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
import requests

from harness.client import later, request
from harness.gate import Gate
from harness.processes import open_files
from harness.server import Server
from harness.wait import until

RESET = struct.pack("ii", 1, 0)


def leave(connection: socket.socket, how: str) -> None:
    """Hangs up: in an orderly way, or with a reset."""
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def orders(model: str, body: str) -> bytes:
    """A request to the `orders` handler."""
    return request(f"/predictions/{model}", body.encode(), "Content-Type: application/json")


@pytest.mark.parametrize("how", ["closes", "reset"])
@pytest.mark.parametrize("sent", [1, 60, 100, 5000], ids=lambda sent: f"after {sent} bytes")
def test_a_client_that_leaves_in_the_middle_harms_no_other_request(shared: Server, how: str, sent: int) -> None:
    whole = request("/predictions/echo", b"x" * 1_000_000)
    before = shared.metric("ts_inference_requests_total", "echo")
    connection = socket.create_connection(shared.address)
    connection.sendall(whole[:sent])
    leave(connection, how)
    assert shared.predict("echo", b"next").content == b"next"
    assert shared.metric("ts_inference_requests_total", "echo") == before + 1, "half a request is no request"


@pytest.mark.parametrize("how", ["closes", "reset"])
def test_a_queued_request_whose_client_left_does_not_run(shared: Server, tmp_path: Path, how: str) -> None:
    model, gate, note = shared.need(f"left_{how}", "orders"), Gate(tmp_path), tmp_path / "ran"
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    connection = socket.create_connection(shared.address)
    connection.sendall(orders(model, f'{{"note": ["{note}", "nobody"]}}'))
    until(lambda: shared.metric("jitney_waiting", model) == 1, "the request waits")
    leave(connection, how)
    until(lambda: shared.metric("jitney_waiting", model) == 0, "its place is given up")
    gate.open()
    assert held.result().status_code == 200
    assert shared.predict(model, {"note": [str(note), "somebody"]}).status_code == 200
    assert note.read_text() == "somebody\n"
    assert shared.metric("jitney_requests_cancelled_total", model) == 1


def test_the_place_of_a_client_that_left_is_filled(shared: Server, tmp_path: Path) -> None:
    """A batch of two leaves with the two that stayed, not with a ghost."""
    model, gate = shared.need("filled", "orders", batch_size=2, policy="opportunistic"), Gate(tmp_path)
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    ghost = socket.create_connection(shared.address)
    ghost.sendall(orders(model, "{}"))
    until(lambda: shared.metric("jitney_waiting", model) == 1, "the ghost waits")
    queued = [later(lambda number=number: shared.predict(model, {"id": number})) for number in range(2)]
    until(lambda: shared.metric("jitney_waiting", model) == 3, "all three wait")
    leave(ghost, "closes")
    until(lambda: shared.metric("jitney_waiting", model) == 2, "the ghost is gone")
    gate.open()
    assert [one.result().json()["size"] for one in queued] == [2, 2]
    held.result()


def test_a_client_that_leaves_while_its_batch_runs_spoils_nothing(shared: Server, tmp_path: Path) -> None:
    model, gate = shared.need("walked_out", "orders", batch_size=2, max_batch_delay=20_000), Gate(tmp_path)
    connection = socket.create_connection(shared.address)
    connection.sendall(orders(model, '{"id": "ghost"}'))
    stays = later(lambda: shared.predict(model, {"id": "stays"} | gate.order))
    gate.wait()
    leave(connection, "reset")
    gate.open()
    assert stays.result().json()["id"] == "stays"
    until(lambda: shared.metric("jitney_requests_cancelled_total", model) == 1, "the ghost is counted")


def test_connections_that_were_left_are_given_back(shared: Server) -> None:
    shared.predict("echo", b"")
    before = open_files(shared.pid)
    connections = [socket.create_connection(shared.address) for _ in range(200)]
    for number, connection in enumerate(connections):
        connection.sendall(request("/predictions/echo", b"x" * 1000)[: 20 + number])
    for connection in connections:
        leave(connection, "reset")
    until(lambda: open_files(shared.pid) <= before + 5, "descriptors are given back")


def test_a_client_that_does_not_read_its_answer_stops_only_itself(shared: Server) -> None:
    """Pipelined requests for large answers that the client does not read: the server stops writing, not serving."""
    deaf = socket.create_connection(shared.address)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.setblocking(False)
    flood = request("/predictions/echo", b"y" * 1_000_000) * 8
    try:
        while flood:
            flood = flood[deaf.send(flood) :]
    except BlockingIOError:
        pass
    assert shared.predict("echo", b"hearing").content == b"hearing"
    deaf.close()


def test_a_connection_lives_on_after_an_error(shared: Server) -> None:
    session = requests.Session()
    session.get(shared.url("/ping"), timeout=120)
    for path, status in (("nobody", 404), ("echo/9", 404), ("echo", 200)):
        reply = session.post(shared.url(f"/predictions/{path}"), data=b"x" * 1000, timeout=120)
        assert reply.status_code == status
    (adapter,) = {id(adapter): adapter for adapter in session.adapters.values() if adapter.poolmanager.pools}.values()
    (pool,) = adapter.poolmanager.pools._container.values()
    assert pool.num_connections == 1


def test_a_slow_body_is_served_when_it_is_complete(shared: Server) -> None:
    whole = request("/predictions/echo", b"drip by drip", "Connection: close")
    with socket.create_connection(shared.address) as connection:
        for byte in whole:
            connection.sendall(bytes([byte]))
        assert connection.makefile("rb").read().endswith(b"drip by drip")
