"""The live server beside the simulator: what a run adds, where time goes, which bars are missed. Nothing is started."""

from __future__ import annotations

import sys

import pytest

from harness.package import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import live

OPEN = [load for load in live.LOADS if load.way != "closed"]
CLOSED = [load for load in live.LOADS if load.way == "closed"]


def told(requests: int, batches: int, latency: float, queue: float, compute: float) -> dict:
    """Statistics of a server, as far as they are read; requests have one item."""
    total = {"answeredRequests": requests, "answeredItems": requests, "answeredBatches": batches}
    seconds = {"queueSecondsSum": queue, "computeSecondsSum": compute}
    return {"requests": {"latencySecondsSum": latency}, "total": total | seconds}


def test_a_run_is_what_was_added_to_the_counts():
    assert live.difference({1: (10, 0.05), 4: (3, 0.02)}, {1: (30, 0.15), 2: (5, 0.03), 4: (3, 0.02)}) == {
        1: (20, pytest.approx(0.1)),
        2: (5, 0.03),
    }


def test_the_time_of_a_mean_request_is_told_apart():
    before, after = told(100, 50, 1.0, 0.4, 0.25), told(300, 150, 2.6, 0.8, 0.87)
    slept, computed = {1: (90, 0.468), 3: (2, 0.0112)}, {1: (95, 0.513), 2: (5, 0.028), 3: (2, 0.0116)}
    parts = live.attribute(before, after, slept, computed, client_ms=8.5)
    assert parts["batch"] == 2.0 and parts["queue"] == pytest.approx(2.0) and parts["door"] == pytest.approx(0.5)
    # Size 2 never slept in the handler's file: it is left out.
    assert parts["worker"] == pytest.approx(0.2)


def rows(adaptive: dict[str, float], opportunistic: dict[str, float]) -> dict:
    """The same figures for every load."""
    usual = {"mean": 8.0, "p50": 8.0, "p99": 12.0, "per_s": 3000.0, "batch": 2.0, "worker": 0.1, "door": 0.1, "bad": 0}
    usual |= {f"{curve}_{key}": usual[key] for curve in ("sleeps", "server") for key in ("mean", "p50", "p99", "per_s")}
    both = {"adaptive": usual | adaptive, "opportunistic": usual | opportunistic}
    return {(policy, load): row for policy, row in both.items() for load in live.LOADS}


def test_bars_are_missed_by_the_one_that_is_too_slow_and_by_no_other(capsys):
    assert live.print_open(rows({}, {})) == live.print_closed(rows({}, {})) == []
    slow = live.print_open(rows({"p99": 12.5}, {}))
    assert len(slow) == len(OPEN) and all("p99: 1.042 of opportunistic" in line for line in slow)
    assert live.print_open(rows({"p50": 8.7}, {"p50": 8.7}))[0].startswith("pool 300/s p50: 1.087 of server")
    assert live.print_closed(rows({"per_s": 2600.0, "sleeps_per_s": 2700.0}, {})) == [
        "64 connections: 0.963 of the simulator, at least 0.97"
    ]
    assert capsys.readouterr().out.count("| nginx |") == 3 * len(OPEN) // 2


def test_live_and_simulated_have_the_same_arrivals_and_pools():
    for load in OPEN:
        bench, simulated = load.generated(seed=7), load.simulated(seed=7)
        for flag in ("--rate", "--seed", "--pool-order"):
            assert bench[bench.index(flag) + 1] == simulated[simulated.index(flag) + 1], flag
    assert CLOSED[0].simulated(1) == ["--clients", "4"]
