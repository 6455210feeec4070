"""What an answer says about its way: the Server-Timing header and the counters on the metrics page."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harness.client import curl, later, together
from harness.gate import Gate
from harness.server import Server
from harness.shape import timing_of


def test_every_answer_has_a_timing(shared: Server) -> None:
    timing = timing_of(curl("-d", "x", "-H", "Content-Type: text/plain", shared.url("/predictions/echo")))
    assert (timing.size, timing.max, timing.reason, timing.attempt) == (1, 1, "full", 1)
    assert timing.queue >= 0 and timing.compute > 0


def test_compute_is_the_time_the_handler_took(shared: Server) -> None:
    model = shared.need("timed", "orders")
    reply = shared.predict(model, {"sleep": 0.1})
    assert 100 <= timing_of(reply).compute <= reply.elapsed.total_seconds() * 1e3


def test_queue_is_the_time_in_the_queue(shared: Server, tmp_path: Path) -> None:
    model, gate = shared.need("waited", "orders"), Gate(tmp_path)
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    queued = later(lambda: shared.predict(model, {}))
    slow = shared.predict("echo", b"")
    gate.open()
    assert timing_of(queued.result()).queue > 0 and timing_of(slow).queue < timing_of(held.result()).compute


def test_a_batch_tells_its_size_its_maximum_and_its_reason(shared: Server) -> None:
    model = shared.need("batched", "orders", batch_size=4, max_batch_delay=600_000)
    timings = [timing_of(reply) for reply in together([lambda: shared.predict(model, {}) for _ in range(4)])]
    assert {(timing.size, timing.max, timing.reason) for timing in timings} == {(4, 4, "full")}
    shared.manage("PUT", f"/models/{model}", max_batch_delay=300)
    timing = timing_of(shared.predict(model, {}))
    assert (timing.size, timing.max, timing.reason) == (1, 4, "window")
    assert timing.queue >= 300


def test_a_retried_request_shows_its_attempt(shared: Server) -> None:
    model = shared.need("retried", "orders", batch_size=2, max_batch_delay=600_000)
    good, bad = together([lambda: shared.predict(model, {"id": 1}), lambda: shared.predict(model, {"raise": "no"})])
    assert bad.status_code == 503
    timing = timing_of(good)
    assert (timing.size, timing.reason, timing.attempt) == (1, "retry", 2)
    assert shared.metric("jitney_requests_retried_total", model) == 2


def test_a_request_whose_worker_was_killed_shows_its_second_attempt(shared: Server, tmp_path: Path) -> None:
    model, gate = shared.need("survivor", "orders"), Gate(tmp_path)
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    os.kill(shared.ready(model).popitem()[1], signal.SIGKILL)
    gate.open()
    reply = held.result()
    assert reply.status_code == 200 and timing_of(reply).attempt == 2


def test_every_request_ends_in_exactly_one_counter(shared: Server) -> None:
    model = shared.need("counted", "orders", batch_size=2, max_batch_delay=10)
    orders = [{}, {}, {"raise": "x"}, {"return": "nothing"}, {}]
    for order in orders:
        shared.predict(model, order)
    shared.predict(model, {}, headers={"x-jitney-timeout-ms": "0"})
    counters = {
        name: shared.metric(f"jitney_requests_{name}_total", model)
        for name in ("answered", "failed", "rejected", "cancelled")
    }
    assert counters == {"answered": 3, "failed": 2, "rejected": 1, "cancelled": 0}
    assert shared.metric("ts_inference_requests_total", model) == 6


def test_dispatches_are_counted_by_reason(shared: Server) -> None:
    model = shared.need("dispatches", "orders", batch_size=2, max_batch_delay=10)
    together([lambda: shared.predict(model, {}) for _ in range(2)])
    shared.predict(model, {})
    assert sum(shared.metric("jitney_dispatches_total", model, reason=reason) for reason in ("full", "window")) >= 2
    assert shared.metric("jitney_items_total", model) == 3
