"""Adaptive batching on the live server: what the others get wrong, how it explains itself, what can be changed.

The first twelve tests are each a known failure of at least one other server.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.client import Reply, later, parse, read_all, request, together
from harness.gate import Gate
from harness.load import LoadResult, run_load
from harness.server import ASK_SECONDS, Server
from harness.shape import assert_problem, timing_of
from harness.wait import until


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A gate of the test's own."""
    return Gate(tmp_path)


def load(server: Server, model: str, connections: int, requests: int, order: dict) -> LoadResult:
    """So many requests from so many clients, each of whom waits for its answer."""
    body = json.dumps(order).encode()

    async def run() -> LoadResult:
        host, port = server.address
        path, headers = f"/predictions/{model}", "Content-Type: application/json\r\n"
        ok = lambda _number, status, _body: status == 200  # noqa: E731
        return await run_load(host, port, path, connections, lambda _: body, ok, requests=requests, headers=headers)

    return asyncio.run(run())


def told(server: Server, model: str) -> dict:
    """What the model's batcher says about itself."""
    return server.manage("GET", f"/models/{model}/batching").json()


def waiting(server: Server, model: str, count: int) -> None:
    """Until so many requests wait for the model."""
    until(lambda: told(server, model)["waiting"] == count, f"{count} requests wait for {model}")


def queue_up(
    server: Server, model: str, gate: Gate, orders: list[dict], *headers: str, waits: int | None = None
) -> list[Reply]:
    """Sends the requests while the worker is held at the gate; when all of them wait, or `waits`, lets it through."""
    held = later(lambda: server.predict(model, gate.order))
    gate.wait()
    connections = []
    for order in orders:
        connections.append(socket.create_connection(server.address, timeout=ASK_SECONDS))
        body = json.dumps(order).encode()
        message = request(
            f"/predictions/{model}", body, "Content-Type: application/json", "Connection: close", *headers
        )
        connections[-1].sendall(message)
    least = len(orders) if waits is None else waits
    until(lambda: told(server, model)["waiting"] >= least, f"{least} requests wait for {model}")
    gate.open()
    assert held.result().status_code == 200
    return [reply for connection in connections for reply in parse(read_all(connection))]


# -- the twelve --------------------------------------------------------------------------------


def test_a_batch_that_waits_for_its_worker_keeps_growing(shared: Server, gate: Gate) -> None:
    """200 requests that come while the worker is busy: batches grow as fast as is safe, and none is frozen early."""
    model = shared.need("late_binding", "orders", batch_size=256, job_queue_size=500)
    replies = queue_up(shared, model, gate, [{"id": number} for number in range(200)])
    assert [reply.json()["id"] for reply in replies] == list(range(200))
    assert shared.metric("jitney_batches_total", model) <= 8


def test_an_output_of_the_wrong_length_is_returned_to_no_request(shared: Server, gate: Gate) -> None:
    model = shared.need("wrong_length", "orders", batch_size=8)
    busy = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    queued = [later(lambda n=n: shared.predict(model, {"id": n, "return": "few"})) for n in range(4)]
    waiting(shared, model, 4)
    gate.open()
    for one in queued:
        assert_problem(one.result(), 503, "InternalServerException", "number of batch response mismatched")
    assert busy.result().status_code == 200


def test_a_batch_that_cannot_be_collated_fails_alone_and_the_next_is_served(shared: Server) -> None:
    model = shared.need("collation", "pacer", batch_size=8)
    for _ in range(3):
        assert shared.predict(model, {"uncollatable": True}).status_code == 503
        assert shared.predict(model, {"id": 7}).json()["id"] == 7


def test_a_client_that_leaves_the_queue_is_not_computed_and_its_place_is_filled(
    shared: Server, gate: Gate, tmp_path: Path
) -> None:
    model, ran = shared.need("cancelled", "orders", batch_size=2), tmp_path / "ran"
    busy = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    cancelled = socket.create_connection(shared.address)
    body = json.dumps({"note": [str(ran), "cancelled"]}).encode()
    cancelled.sendall(request(f"/predictions/{model}", body, "Content-Type: application/json"))
    waiting(shared, model, 1)
    others = [later(lambda n=n: shared.predict(model, {"id": n, "note": [str(ran), str(n)]})) for n in range(2)]
    waiting(shared, model, 3)
    cancelled.close()
    waiting(shared, model, 2)
    gate.open()
    assert [other.result().json()["size"] for other in others] == [2, 2]
    assert busy.result().status_code == 200 and sorted(ran.read_text().split()) == ["0", "1"]


def test_a_burst_that_fits_the_deadline_is_served_to_the_last(shared: Server) -> None:
    """40 requests at once, 10 per 150 ms, 4 s to answer; before them came single requests only.

    Whoever takes a batch for as long as its requests one by one expects 6 s and rejects the last ones.
    """
    model = shared.need("burst", "pacer", batch_size=10, max_latency_ms=4000)
    load(shared, model, 1, 6, {"batch_ms": 150})
    result = load(shared, model, 40, 40, {"batch_ms": 150})
    assert result.statuses == {200: 40}, result


def test_every_request_of_a_batch_has_its_own_context(shared: Server) -> None:
    model = shared.need("context", "pacer", batch_size=8, max_batch_delay=600_000)
    calls = [lambda n=n: shared.predict(model, {"id": n}, headers={"X-Who": f"w{n}"}) for n in range(8)]
    answers = [reply.json() for reply in together(calls)]
    assert [(answer["id"], answer["who"], answer["size"]) for answer in answers] == [(n, f"w{n}", 8) for n in range(8)]


def test_requests_are_dispatched_in_the_order_of_arrival(shared: Server, gate: Gate, tmp_path: Path) -> None:
    """Requests that do not fit into a batch stay at the head of the queue."""
    model, ran = shared.need("in_line", "orders", batch_size=3), tmp_path / "ran"
    busy = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    queued = []
    for number in range(8):
        order = {"id": number, "note": [str(ran), str(number)]}
        queued.append(later(lambda order=order: shared.predict(model, order)))
        waiting(shared, model, number + 1)
    gate.open()
    assert [one.result().status_code for one in [busy, *queued]] == [200] * 9
    assert ran.read_text().split() == [str(number) for number in range(8)]


def test_metrics_count_as_many_items_as_were_sent(shared: Server) -> None:
    model = shared.need("counted", "pacer", batch_size=16)
    result = load(shared, model, 16, 71, {"batch_ms": 5})
    assert result.statuses == {200: 71}
    assert shared.metric("jitney_items_total", model) == 71
    assert shared.metric("jitney_requests_answered_total", model) == 71
    batches = shared.metric("jitney_batches_total", model)
    reasons = ("full", "idle", "window", "deadline", "everyone", "drain", "retry")
    assert sum(shared.metric("jitney_dispatches_total", model, reason=reason) for reason in reasons) == batches


def test_one_bad_item_costs_its_neighbours_nothing(shared: Server, gate: Gate) -> None:
    model = shared.need("bad_item", "orders", batch_size=8)
    busy = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    orders = [{"id": n} | ({"raise": "poison"} if n == 3 else {}) for n in range(8)]
    queued = [later(lambda order=order: shared.predict(model, order)) for order in orders]
    waiting(shared, model, 8)
    gate.open()
    statuses = [one.result().status_code for one in queued]
    assert statuses == [503 if n == 3 else 200 for n in range(8)]
    assert busy.result().status_code == 200


def test_a_costly_item_is_not_overtaken(start: Callable[..., Server], gate: Gate, tmp_path: Path) -> None:
    """One that does not fit into the call with those before it is the first of the next call; no other overtakes it."""
    home, ran = tmp_path / "app", tmp_path / "ran"
    home.mkdir()
    (home / "line.py").write_text(LINE)
    server = start("serve", "line:line", cwd=home)
    orders = [[1, "held"], [3, "a"], [3, "big"], [1, "c"], [2, "d"], [4, "huge"], [1, "f"]]

    def ask(order: list) -> int:
        body = {"order": [*order, str(ran), str(gate.arrived), str(gate.opened)]}
        return requests.post(server.url("/line"), json=body, timeout=ASK_SECONDS).status_code

    queued = [later(lambda: ask(orders[0]))]
    gate.wait()
    for place, order in enumerate(orders[1:], 1):
        queued.append(later(lambda order=order: ask(order)))
        waiting(server, "line", place)
    gate.open()
    assert [one.result() for one in queued] == [200] * len(orders)
    assert ran.read_text().splitlines() == ["held", "a", "big c", "d", "huge", "f"]


LINE = '''
import pathlib
import time

import jitney


@jitney.batch(max_batch_size=8, cost=lambda order: order[0] * 2)
def line(order: list[list]) -> list[int]:
    """Notes who came in which call; the first one waits at the gate."""
    _cost, _name, ran, arrived, opened = order[0]
    with open(ran, "a") as notes:
        notes.write(" ".join(name for _, name, *_ in order) + "\\n")
    pathlib.Path(arrived).touch()
    while not pathlib.Path(opened).exists():
        time.sleep(0.001)
    return [cost for cost, *_ in order]
'''


def test_more_workers_share_one_queue(shared: Server, tmp_path: Path) -> None:
    """Requests that wait are not dealt out to busy workers: the first one that is free takes them all."""
    model = shared.need("pool", "orders", workers=4, batch_size=8)
    gates = [Gate(tmp_path, f"gate{number}") for number in range(4)]
    held = []
    for gate in gates:
        held.append(later(lambda gate=gate: shared.predict(model, gate.order)))
        gate.wait()
    queued = [later(lambda n=n: shared.predict(model, {"id": n})) for n in range(8)]
    waiting(shared, model, 8)
    gates[2].open()
    answers = [one.result().json() for one in queued]
    assert [(answer["id"], answer["size"]) for answer in answers] == [(n, 8) for n in range(8)]
    assert {answer["pid"] for answer in answers} == {held[2].result().json()["pid"]}
    for gate in gates:
        gate.open()
    assert [one.result().status_code for one in held] == [200] * 4


def test_a_rejection_does_not_wait_and_tells_why_and_when_to_come_again(shared: Server, gate: Gate) -> None:
    """A batch takes 40 ms and more, so 20 ms are too few; the rejection comes while the worker is held."""
    model = shared.need("hopeless", "orders", batch_size=4)
    for _ in range(20):
        assert shared.predict(model, {"sleep": 0.04}).status_code == 200
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    for _ in range(5):
        rejected = shared.predict(model, {}, headers={"x-jitney-timeout-ms": "20"})
        assert_problem(rejected, 503, "ServiceUnavailableException", "[reason: hopeless]")
        assert int(rejected.headers["retry-after"]) >= 1
    gate.open()
    assert held.result().status_code == 200
    assert shared.metric("jitney_rejections_total", model, reason="hopeless") == 5


def test_a_worker_killed_in_mid_batch_loses_no_request(shared: Server, gate: Gate) -> None:
    model = shared.need("killed", "orders", workers=2, batch_size=8, job_queue_size=200)
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    others = [later(lambda n=n: shared.predict(model, {"id": n})) for n in range(6)]
    answers = [other.result().json() for other in others]
    assert [answer["id"] for answer in answers] == list(range(6))
    [busy] = set(shared.ready(model).values()) - {answer["pid"] for answer in answers}
    os.kill(busy, signal.SIGKILL)
    gate.open()
    assert held.result().status_code == 200 and timing_of(held.result()).attempt == 2


# -- it explains itself ------------------------------------------------------------------------


def test_the_batcher_tells_what_it_learned_and_why_it_decided(shared: Server, binary: Path, tmp_path: Path) -> None:
    model = shared.need("explained", "orders", batch_size=16, max_latency_ms=60_000)
    # Batches grow from turn to turn. One of them may already lie before the held worker, in its second slot, so that
    # of 40 requests at least 24 wait.
    orders = [{"id": n, "sleep": 0.01} for n in range(40)]
    sizes: set[int] = set()
    for turn in range(50):
        gate = Gate(tmp_path, f"gate{turn}")
        sizes |= {reply.json()["size"] for reply in queue_up(shared, model, gate, orders, waits=24)}
        if 16 in sizes:
            break
    assert 16 in sizes, sizes
    said = told(shared, model)
    assert (said["policy"], said["maxBatchSize"], said["maxLatencyMs"]) == ("adaptive", 16, 60_000)
    curve = {point["size"]: point["ms"] for point in said["curve"]}
    assert curve[16] >= 10, curve
    newest = said["decisions"][0]
    assert (newest["decision"], newest["verdict"]) in (("dispatch", "depart"), ("wait", "wait")), newest
    assert newest["words"], newest
    until(lambda: shared.metric("jitney_service_seconds", model) > 0, "the curve is on the metrics page")
    assert shared.metric("jitney_prediction_ratio_count", model) > 0
    exported = tmp_path / "curve.json"
    exported.write_text(json.dumps(said))
    command = [binary, "simulate", "--curve", exported, "--clients", "4", "--policy", "adaptive"]
    studied = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert studied.returncode == 0, studied.stderr


def test_everything_can_be_changed_on_the_live_model_and_shows_at_once(shared: Server) -> None:
    model = shared.need("changed", "pacer", batch_size=4)
    for query, expected in [
        ({"max_batch_size": 8, "max_latency_ms": 75}, ("adaptive", 8, 75, None)),
        ({"max_batch_delay": 9}, ("window", 8, 75, 9)),
        ({"max_batch_delay": 3, "policy": "adaptive"}, ("adaptive", 8, 75, 3)),
        ({"max_latency_ms": 0}, ("adaptive", 8, None, 3)),
        ({"policy": "opportunistic", "job_queue_size": 5}, ("opportunistic", 8, None, None)),
    ]:
        assert shared.manage("PUT", f"/models/{model}", **query).status_code == 200
        said = told(shared, model)
        shown = (said["policy"], said["maxBatchSize"], said.get("maxLatencyMs"), said.get("maxBatchDelayMs"))
        assert shown == expected, query
    assert told(shared, model)["maxWaiting"] == 5


@pytest.mark.parametrize(
    ("section", "size", "latency"),
    [
        ("{enabled: true, max_batch_size: 24, max_latency_ms: 80}", 24, 80),
        ("{enabled: true}", 100, None),
        ("{enabled: false, max_batch_size: 24}", 1, None),
    ],
)
def test_batching_is_spelled_as_bentoml_spells_it(shared: Server, section: str, size: int, latency: int | None) -> None:
    model = shared.need(f"bento_{size}", "pacer", config=f"batching: {section}\n")
    said = told(shared, model)
    assert (said["maxBatchSize"], said.get("maxLatencyMs")) == (size, latency)


def test_a_model_with_a_sample_knows_its_curve_before_the_first_request(shared: Server) -> None:
    sample = {"jitney_sample.json": json.dumps({"batch_ms": 3, "item_ms": 0.5})}
    shared.register(shared.store.mar("swept", "pacer", files=sample), batch_size=16)
    said = told(shared, "swept")
    assert [point["size"] for point in said["curve"]] == [1, 2, 4, 8, 16]
    assert said["curve"][-1]["ms"] > 10
    assert shared.metric("jitney_batches_total", "swept") == 0
    assert shared.metric("jitney_items_total", "swept") == 0
    assert shared.predict("swept", {"id": 1}).json()["id"] == 1


def test_a_sample_that_fails_or_kills_is_tried_once_and_the_model_serves(shared: Server) -> None:
    for name, order in (("sad_sample", {"raise": "no"}), ("deadly_sample", {"os_exit": 3})):
        sample = {"jitney_sample.json": json.dumps(order)}
        shared.register(shared.store.mar(name, "orders", files=sample), batch_size=8)
        assert shared.predict(name, {"id": 4}).json()["id"] == 4
        assert told(shared, name)["curve"][0]["samples"] == 1
