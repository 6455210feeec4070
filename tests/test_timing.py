"""What an answer says about its ride: the Server-Timing header and the counters on the metrics page."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harness.client import curl, later, together
from harness.gate import Gate
from harness.server import Server
from harness.shape import receipt


def test_every_answer_has_a_receipt(shared: Server) -> None:
    ride = receipt(curl("-d", "x", "-H", "Content-Type: text/plain", shared.url("/predictions/echo")))
    assert (ride.size, ride.max, ride.reason, ride.attempt) == (1, 1, "full", 1)
    assert ride.queue >= 0 and ride.compute > 0


def test_compute_is_the_time_the_handler_took(shared: Server) -> None:
    model = shared.need("timed", "orders")
    assert 100 <= receipt(shared.predict(model, {"sleep": 0.1})).compute < 1000


def test_queue_is_the_time_in_the_queue(shared: Server, tmp_path: Path) -> None:
    model, gate = shared.need("waited", "orders"), Gate(tmp_path)
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    queued = later(lambda: shared.predict(model, {}))
    slow = shared.predict("echo", b"")
    gate.open()
    assert receipt(queued.result()).queue > 0 and receipt(slow).queue < receipt(held.result()).compute


def test_a_batch_tells_its_size_its_maximum_and_its_reason(shared: Server) -> None:
    model = shared.need("batched", "orders", batch_size=4, max_batch_delay=300)
    rides = [receipt(reply) for reply in together([lambda: shared.predict(model, {}) for _ in range(4)])]
    assert {(ride.size, ride.max, ride.reason) for ride in rides} == {(4, 4, "full")}
    ride = receipt(shared.predict(model, {}))
    assert (ride.size, ride.max, ride.reason) == (1, 4, "window")
    assert ride.queue >= 300


def test_a_retried_request_shows_its_attempt(shared: Server) -> None:
    model = shared.need("retried", "orders", batch_size=2, max_batch_delay=20_000)
    good, bad = together([lambda: shared.predict(model, {"id": 1}), lambda: shared.predict(model, {"raise": "no"})])
    assert bad.status_code == 503
    ride = receipt(good)
    assert (ride.size, ride.reason, ride.attempt) == (1, "retry", 2)
    assert shared.metric("jitney_requests_retried_total", model) == 2


def test_a_request_whose_worker_was_killed_shows_its_second_attempt(shared: Server, tmp_path: Path) -> None:
    model, gate = shared.need("survivor", "orders"), Gate(tmp_path)
    held = later(lambda: shared.predict(model, gate.order))
    gate.wait()
    os.kill(shared.ready(model).popitem()[1], signal.SIGKILL)
    gate.open()
    reply = held.result()
    assert reply.status_code == 200 and receipt(reply).attempt == 2


def test_every_request_ends_in_exactly_one_counter(shared: Server) -> None:
    model = shared.need("counted", "orders", batch_size=2, max_batch_delay=10)
    orders = [{}, {}, {"raise": "x"}, {"return": "nothing"}, {}]
    for order in orders:
        shared.predict(model, order)
    shared.predict(model, {}, headers={"x-jitney-timeout-ms": "0"})
    counters = {
        name: shared.metric(f"jitney_requests_{name}_total", model)
        for name in ("answered", "failed", "refused", "abandoned")
    }
    assert counters == {"answered": 3, "failed": 2, "refused": 1, "abandoned": 0}
    assert shared.metric("ts_inference_requests_total", model) == 6


def test_departures_are_counted_by_reason(shared: Server) -> None:
    model = shared.need("departures", "orders", batch_size=2, max_batch_delay=10)
    together([lambda: shared.predict(model, {}) for _ in range(2)])
    shared.predict(model, {})
    assert sum(shared.metric("jitney_departures_total", model, reason=reason) for reason in ("full", "window")) >= 2
    assert shared.metric("jitney_items_total", model) == 3
