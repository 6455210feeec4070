"""Batches as clients see them: who shares a batch with whom, what a full queue says, when deadlines end a wait."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.client import later, together
from harness.gate import Gate
from harness.server import Server
from harness.shape import assert_problem, timing_of
from harness.wait import until


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A gate of the test's own."""
    return Gate(tmp_path)


def waiting(server: Server, model: str, count: int) -> None:
    """Until so many requests wait for the model."""
    until(lambda: server.metric("jitney_waiting", model) == count, f"{count} requests wait for {model}")


def test_requests_that_wait_behind_a_busy_worker_share_batches_in_order(shared: Server, gate: Gate) -> None:
    model = shared.need("queued", "orders", batch_size=4, policy="opportunistic")
    busy = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    queued = []
    for number in range(8):
        queued.append(later(lambda number=number: shared.predict(model, {"id": number})))
        waiting(shared, model, number + 1)
    gate.open()
    answers = [one.result().json() for one in queued]
    assert [answer["id"] for answer in answers] == list(range(8))
    assert [answer["size"] for answer in answers] == [4] * 8
    assert [answer["position"] for answer in answers] == [0, 1, 2, 3] * 2
    assert busy.result().json()["size"] == 1


def test_a_full_batch_does_not_wait_for_the_window(shared: Server) -> None:
    model = shared.need("full_window", "orders", batch_size=4, max_batch_delay=600_000)
    replies = together([lambda: shared.predict(model, {}) for _ in range(4)])
    assert [timing_of(reply).reason for reply in replies] == ["full"] * 4
    assert [reply.json()["size"] for reply in replies] == [4] * 4


def test_the_window_counts_from_the_oldest_requests_arrival(shared: Server, gate: Gate) -> None:
    """A request that has waited out the window behind a busy worker is dispatched as soon as it is free."""
    model = shared.need("old_window", "orders", batch_size=4, max_batch_delay=2500)
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    second = later(lambda: shared.predict(model, {}))
    waiting(shared, model, 1)
    over = time.monotonic() + 2.6
    until(lambda: time.monotonic() > over, "the window is over")
    gate.open()
    timing = timing_of(second.result())
    assert timing.reason == "window" and timing.size == 1
    assert 2500 <= timing.queue < 5000, "no second window on top of the wait"
    assert held.result().status_code == 200


def test_without_a_window_a_free_worker_takes_what_is_there(shared: Server) -> None:
    model = shared.need("eager", "orders", batch_size=8)
    assert timing_of(shared.predict(model, {})).reason in ("idle", "everyone")


def test_a_batch_size_of_one_never_batches(shared: Server, gate: Gate) -> None:
    model = shared.need("lonely", "orders")
    busy = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    others = [later(lambda: shared.predict(model, {})) for _ in range(5)]
    waiting(shared, model, 5)
    gate.open()
    assert [other.result().json()["size"] for other in [busy, *others]] == [1] * 6


def test_two_workers_work_at_the_same_time(shared: Server, tmp_path: Path) -> None:
    model = shared.need("pair", "orders", workers=2)
    gates = [Gate(tmp_path, name) for name in ("left", "right")]
    held = [later(lambda gate=gate: shared.predict(model, gate.order)) for gate in gates]
    for gate in gates:
        gate.wait()
    for gate in gates:
        gate.open()
    assert len({answer.result().json()["pid"] for answer in held}) == 2


def test_the_archives_own_batching_is_obeyed(shared: Server) -> None:
    config = "batchSize: 3\nmaxBatchDelay: 600000\nminWorkers: 1\nmaxWorkers: 1\n"
    model = shared.need("configured", "orders", config=config)
    replies = together([lambda: shared.predict(model, {}) for _ in range(3)])
    assert [timing_of(reply).max for reply in replies] == [3] * 3
    assert [timing_of(reply).reason for reply in replies] == ["full"] * 3


def test_a_batch_of_large_bodies_stays_whole(shared: Server) -> None:
    """32 MB in one batch and back: neither side may block on the other's full pipe."""
    model = shared.need("freight", "echo", batch_size=8, max_batch_delay=600_000)
    bodies = [bytes([number]) * 4_000_000 for number in range(8)]
    replies = together([lambda body=body: shared.predict(model, body) for body in bodies])
    assert [reply.content == body for reply, body in zip(replies, bodies, strict=True)] == [True] * 8
    assert [timing_of(reply).size for reply in replies] == [8] * 8


# -- rejections ----------------------------------------------------------------------------------


def test_a_full_queue_rejects_with_a_reason_and_when_to_come_again(shared: Server, gate: Gate) -> None:
    model = shared.need("narrow", "orders", config="jobQueueSize: 2\n")
    held = [later(lambda: shared.predict(model, gate.order))]
    gate.wait()
    held += [later(lambda: shared.predict(model, {})) for _ in range(2)]
    waiting(shared, model, 2)
    rejected = shared.predict(model, {})  # It comes although the worker is held: a rejection does not wait.
    assert_problem(rejected, 503, "ServiceUnavailableException", "full queue (2 waiting)", "[reason: queue_full]")
    assert int(rejected.headers["retry-after"]) >= 1
    gate.open()
    assert [answer.result().status_code for answer in held] == [200] * 3


def test_a_model_without_workers_is_rejected_in_torchserves_words(shared: Server) -> None:
    shared.register(shared.store.mar("idle", "echo"), workers=0)
    words = (
        'Model "idle" has no worker to serve inference request. Please use scale workers API to add workers. '
        "If this is a sequence inference, please check if it is closed, or expired; or exceeds maxSequenceJobQueueSize"
    )
    rejected = shared.predict("idle", b"")
    assert_problem(rejected, 503, "ServiceUnavailableException", words)
    assert int(rejected.headers["retry-after"]) >= 1
    assert_problem(
        shared.predict("idle/1.0", b""), 503, "ServiceUnavailableException", 'Model "idle" Version 1.0" has no worker'
    )


def test_those_who_wait_are_told_when_the_last_worker_leaves(shared: Server, gate: Gate) -> None:
    model = shared.need("leaving", "orders")
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    queued = later(lambda: shared.predict(model, {}))
    waiting(shared, model, 1)
    assert shared.manage("PUT", f"/models/{model}", min_worker=0, max_worker=0).status_code == 202
    until(lambda: not shared.workers(model), "the worker is on its way out")
    gate.open()
    assert held.result().status_code == 200, "what runs is finished"
    assert queued.result().status_code in (200, 503)


# -- deadlines ---------------------------------------------------------------------------------


def test_a_deadline_that_passes_in_the_queue_ends_the_wait(shared: Server, gate: Gate, tmp_path: Path) -> None:
    model = shared.need("patient", "orders")
    note = tmp_path / "ran"
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    began = time.monotonic()
    late = shared.predict(model, {"note": [str(note), "late"]}, headers={"x-jitney-timeout-ms": "150"})
    assert time.monotonic() - began >= 0.14
    assert_problem(late, 408, "RequestTimeoutException", "deadline", "[reason: expired]")
    gate.open()
    assert held.result().status_code == 200
    assert shared.predict(model, {"note": [str(note), "later"]}).status_code == 200
    assert note.read_text() == "later\n", "what expired must not run"


def test_a_deadline_shorter_than_the_window_is_kept(shared: Server) -> None:
    """A request with a deadline is dispatched before the window is over, while there is time to answer it."""
    model = shared.need("hurried", "orders", batch_size=8, max_batch_delay=600_000)
    reply = shared.predict(model, {}, headers={"x-jitney-timeout-ms": "6000"})
    assert reply.status_code == 200
    assert "deadline" in reply.headers["server-timing"]


def test_the_archives_client_timeout_is_answered(shared: Server, gate: Gate) -> None:
    model = shared.need("client_timeout", "orders", config="clientTimeoutInMills: 200\n")
    held = later(lambda: shared.predict(model, gate.order, headers={"x-jitney-timeout-ms": "60000"}))
    gate.wait()
    assert_problem(shared.predict(model, {}), 408, "RequestTimeoutException")
    gate.open()
    held.result()


@pytest.mark.parametrize("timeout_ms", [30_000, 2**63, 2**64 - 1])
def test_a_deadline_in_good_time_changes_nothing(shared: Server, timeout_ms: int) -> None:
    assert shared.predict("echo", b"x", headers={"x-jitney-timeout-ms": str(timeout_ms)}).content == b"x"


def test_interactive_requests_overtake_bulk_ones(shared: Server, gate: Gate, tmp_path: Path) -> None:
    model = shared.need("classes", "orders")
    note = str(tmp_path / "order")
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    queued = []
    for count, priority in enumerate(("bulk", "bulk", "interactive"), start=1):
        headers = {"x-jitney-priority": priority}
        queued.append(
            later(lambda headers=headers, p=priority: shared.predict(model, {"note": [note, p]}, headers=headers))
        )
        waiting(shared, model, count)
    gate.open()
    assert [answer.result().status_code for answer in [held, *queued]] == [200] * 4
    assert Path(note).read_text().split() == ["interactive", "bulk", "bulk"]
