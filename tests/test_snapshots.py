"""What was changed on a live model is in the snapshots, and a server that starts from one goes on with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.archives import Store
from harness.package import ROOT
from harness.server import ASK_SECONDS, FREE_ADDRESSES, Server
from harness.wait import until

APP = """
import jitney


class Kit:
    @jitney.batch(max_batch_size=4, max_latency_ms=2000)
    def fast(self, x: list[int]) -> list[int]:
        return x

    @jitney.batch(max_batch_size=8)
    def slow(self, x: list[int]) -> list[int]:
        return x
"""


@pytest.fixture
def begin(start: Callable[..., Server], tmp_path: Path, store: Store) -> Callable[..., Server]:
    """Starts servers that keep snapshots, each from the last one's."""
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES)
    flags = ["--foreground", "--disable-token-auth", "--enable-model-api", "--model-store", store.path]

    def begin(*more: str, after: Server | None = None) -> Server:
        source = config if after is None else after.newest_snapshot()
        return start("torchserve", "--start", *flags, "--ts-config", source, *more)

    return begin


def batching(server: Server, model: str) -> dict[str, Any]:
    """What is in force."""
    return server.manage("GET", f"/models/{model}/batching").json()


def put(server: Server, model: str, **query: Any) -> None:
    reply = server.manage("PUT", f"/models/{model}", **query)
    assert reply.status_code == 200, reply.text


def test_batching_that_was_changed_live_survives_a_restart(begin, store: Store) -> None:
    store.mar("echo")
    server = begin("--models", "echo=echo.mar")
    put(server, "echo", batch_size=6, max_latency_ms=700, policy="adaptive", job_queue_size=55)
    server.end()
    again = begin(after=server)
    told = batching(again, "echo")
    assert (told["maxBatchSize"], told["maxLatencyMs"], told["policy"], told["maxWaiting"]) == (6, 700, "adaptive", 55)
    put(again, "echo", max_batch_delay=0, policy="window")
    again.end()
    third = begin(after=again)
    assert third.describe("echo")["maxBatchDelay"] == 0
    assert batching(third, "echo")["policy"] == "window"


def test_a_registration_is_in_a_snapshot_when_it_is_answered(begin, store: Store) -> None:
    store.mar("echo")
    server = begin()
    reply = server.manage("POST", "/models", url="echo.mar", initial_workers=1)
    assert reply.status_code == 200, reply.text
    assert "echo.mar" in server.newest_snapshot().read_text()


def test_shares_of_versions_survive_a_restart(begin, store: Store) -> None:
    for version in ("1.0", "2.0"):
        store.mar("echo", version=version).rename(store.path / f"echo-{version}.mar")
    server = begin("--models", "echo=echo-1.0.mar,echo=echo-2.0.mar")
    split = {"shares": {"1.0": 70, "2.0": 30}, "sticky": "header:x-user"}
    requests.put(server.url("/models/echo/traffic", "management"), json=split, timeout=ASK_SECONDS)
    server.end()
    again = begin(after=server)
    assert again.manage("GET", "/models/echo/traffic").json() == split
    requests.delete(again.url("/models/echo/traffic", "management"), timeout=ASK_SECONDS)
    again.end()
    assert begin(after=again).manage("GET", "/models/echo/traffic").json() == {"shares": {"1.0": 100}}


def test_an_objective_that_was_taken_away_does_not_come_back(begin, store: Store) -> None:
    store.mar("echo", config="batching: {max_batch_size: 4, max_latency_ms: 5000}\n")
    server = begin("--models", "echo=echo.mar")
    assert batching(server, "echo")["maxLatencyMs"] == 5000
    put(server, "echo", max_latency_ms=0)
    assert "maxLatencyMs" not in batching(server, "echo")
    server.end()
    assert "maxLatencyMs" not in batching(begin(after=server), "echo")


def test_endpoints_of_a_definition_keep_what_they_were_told(begin, store: Store, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    command = [sys.executable, "-m", "jitney", "pack", "app:Kit", "--out", str(store.path / "Kit")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    server = begin("--models", "Kit=Kit")
    assert latencies(server) == {"fast": 2000, "slow": None}
    put(server, "Kit", endpoint="slow", max_batch_size=5)
    put(server, "Kit", endpoint="slow", max_latency_ms=3000)
    put(server, "Kit", endpoint="fast", max_latency_ms=0)
    until(lambda: "slow" in server.newest_snapshot().read_text(), "a snapshot has it")
    server.end()
    again = begin(after=server)
    assert (batching(again, "Kit")["endpoints"], latencies(again)) == (
        {"fast": 4, "slow": 5},
        {"fast": None, "slow": 3000},
    )


def latencies(server: Server) -> dict[str, float | None]:
    """What the endpoints keep, each by itself."""
    return batching(server, "Kit")["endpointLatenciesMs"]
