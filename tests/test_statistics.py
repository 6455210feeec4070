"""What batches came to, by their size: `GET /models/{model}/statistics` under every policy, and what the log says of
a window that makes requests wait."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.archives import Store
from harness.client import later
from harness.gate import Gate
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

WINDOW = {"batch_size": 4, "max_batch_delay": 1}


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A gate of the test's own."""
    return Gate(tmp_path)


def statistics(server: Server, model: str, version: str = "1.0") -> dict:
    """The statistics of one version."""
    (one,) = server.manage("GET", f"/models/{model}/{version}/statistics").json()
    return one


def held_then(server: Server, model: str, gate: Gate, count: int, seconds: float = 0) -> None:
    """One request that is held at the gate while so many others come and wait, which are answered then."""
    held = later(lambda: server.predict(model, gate.order))
    gate.wait()
    others = [later(lambda: server.predict(model, {})) for _ in range(count)]
    until(lambda: server.metric("jitney_waiting", model) == count, f"{count} requests wait for {model}")
    over = time.monotonic() + seconds
    until(lambda: time.monotonic() >= over, "they have waited long enough")
    gate.open()
    assert [one.result().status_code for one in [held, *others]] == [200] * (count + 1)


@pytest.mark.parametrize(
    ("name", "settings", "first", "second"),
    [
        ("windowed", WINDOW, {"window"}, {"full"}),
        ("timely", {**WINDOW, "policy": "window", "max_latency_ms": 60_000}, {"window"}, {"full"}),
        ("opportunistic", {"batch_size": 8, "policy": "opportunistic"}, {"idle"}, {"idle"}),
        ("adaptive", {"batch_size": 8}, {"idle"}, {"idle", "full", "everyone"}),
    ],
)
def test_batches_are_counted_by_size_and_reason(
    shared: Server, gate: Gate, name: str, settings: dict, first: set[str], second: set[str]
) -> None:
    model = shared.need(f"counted_{name}", "orders", **settings)
    held_then(shared, model, gate, 4)
    told = statistics(shared, model)
    one, four = told["sizes"]
    assert (one["size"], one["batches"], one["items"], set(one["dispatches"]) <= first) == (1, 1, 1, True), one
    assert (four["size"], four["batches"], four["items"], set(four["dispatches"]) <= second) == (4, 1, 4, True), four
    assert four["fill"] == 4 / settings["batch_size"] and four["answeredRequests"] == 4
    assert one["computeSecondsSum"] > four["queueSecondsMean"] > 0, "they waited while the first ran"
    assert told["requests"]["received"] == told["requests"]["answered"] == 5
    check_sums(shared, model, told)


def check_sums(server: Server, model: str, told: dict) -> None:
    """The sizes add up to the total, and the total is what the metrics say."""
    total, sizes = told["total"], told["sizes"]
    for field in ("batches", "items", "answeredBatches", "answeredRequests", "failedBatches"):
        assert total[field] == sum(size[field] for size in sizes), field
    assert server.metric("jitney_batches_total", model) == total["batches"]
    assert server.metric("jitney_items_total", model) == total["items"]
    assert server.metric("jitney_batches_failed_total", model) == total["failedBatches"]
    for reason, count in total["dispatches"].items():
        assert server.metric("jitney_dispatches_total", model, reason=reason) == count
    for field in ("queue", "compute"):
        # The metrics count whole microseconds.
        metric = server.metric(f"jitney_{field}_seconds_sum", model)
        assert math.isclose(metric, total[f"{field}SecondsSum"], abs_tol=1e-5), field


def test_without_batching_every_batch_has_one_item_and_failures_are_counted(shared: Server, gate: Gate) -> None:
    model = shared.need("counted_alone", "orders")
    held_then(shared, model, gate, 3)
    assert shared.predict(model, {"raise": "no"}).status_code == 503
    told = statistics(shared, model)
    (one,) = told["sizes"]
    assert (one["size"], one["batches"], one["answeredBatches"], one["failedBatches"]) == (1, 5, 4, 1)
    assert one["fill"] == 1 and one["dispatches"] == {"full": 5}
    assert told["requests"]["failed"] == 1
    check_sums(shared, model, told)


def test_a_stream_is_a_request_of_one_batch_when_it_has_ended(shared: Server) -> None:
    model = shared.need("counted_stream", "storyteller")
    for _ in range(2):
        assert shared.predict(model, {"pieces": ["a", "b"], "gates": ["", ""], "then": "end"}).text == "abend"
    total = statistics(shared, model)["total"]
    assert (total["batches"], total["answeredBatches"], total["answeredRequests"]) == (2, 2, 2)


def test_a_model_without_a_version_means_all_of_them(shared: Server) -> None:
    model = shared.need("counted_versions", "echo")
    shared.predict(model, {})
    told = shared.manage("GET", f"/models/{model}/statistics").json()
    assert [(one["modelVersion"], one["total"]["batches"]) for one in told] == [("1.0", 1)]
    assert shared.manage("GET", f"/models/{model}/all/statistics").json() == told
    for path in ("/models/nobody/statistics", f"/models/{model}/9/statistics"):
        assert shared.manage("GET", path).status_code == 404
    assert shared.manage("PUT", f"/models/{model}/1.0/statistics").status_code == 405


def test_a_window_that_makes_requests_wait_is_remarked_on_once(
    start: Callable[..., Server], store: Store, tmp_path: Path, gate: Gate
) -> None:
    """Under `jitney torchserve`, after thirty batches that waited far longer than each of them runs."""
    config = tmp_path / "config.properties"
    config.write_text(
        f"{FREE_ADDRESSES}disable_token_authorization=true\nmetrics_mode=prometheus\nenable_model_api=true\njob_queue_size=200\n"
    )
    server = start("torchserve", "--foreground", "--ts-config", config, "--model-store", store.path, store=store)
    model = server.need("slow", "orders", batch_size=2, max_batch_delay=1)
    held_then(server, model, gate, 60, seconds=2)
    server.logged("max_latency_ms=")
    assert statistics(server, model)["total"]["answeredRequests"] == 61
    assert server.log.count("max_latency_ms=") == 1
    assert server.manage("PUT", f"/models/{model}", max_latency_ms=100).status_code in (200, 202)
    assert server.manage("GET", f"/models/{model}/batching").json()["maxLatencyMs"] == 100
