"""A model that becomes slower while the traffic stays: the first line names the model and not the traffic."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.archives import Store
from harness.server import Server
from harness.steady import clients
from harness.wait import until

pytestmark = pytest.mark.heavy

SLOWED_BY_A_FILE = """
import pathlib, time

def handle(data, context):
    time.sleep(0.4 if pathlib.Path({gate!r}).exists() else 0.01)
    return data and ["fine"] * len(data)
"""
PAST_MS = 45_000
"""The server compares the last twenty seconds with those before."""


def overview(server: Server) -> Any:
    """What the dashboard is told."""
    return server.manage("GET", "/overview").json()


@pytest.fixture
def server(binary: Path, tmp_path: Path) -> Iterator[Server]:
    store = Store(tmp_path / "store")
    archive = store.mar("slow", source=SLOWED_BY_A_FILE.format(gate=str(tmp_path / "SLOW")))
    arguments = ["serve", archive, "--model-store", store.path]
    server = Server(binary, tmp_path / "server", arguments, store=store).started()
    yield server
    server.end()


def test_a_slow_model_is_named_and_not_the_traffic(server: Server, tmp_path: Path) -> None:
    assert server.manage("PUT", "/models/slow", max_latency_ms="1000").ok
    slower = "the model has become slower: batches of 1 take 4"
    with clients(server, "slow", 4):
        began = until(lambda: overview(server)["sample"], "a sample is there")["time"]
        until(lambda: overview(server)["sample"]["time"] > began + PAST_MS, "there is a past", poll=1.0)
        (tmp_path / "SLOW").touch()

        def told() -> str | None:
            lines = [one["what"] for one in overview(server)["problems"] if one["model"] == "slow/1.0"]
            return next((line for line in lines if slower in line), None)

        line = until(told, "the model's compute time is named", poll=0.5)
        assert "the offered load is more" not in line, line
        command = [str(server.binary), "status", "--url", server.urls["management"]]
        assert slower in subprocess.run(command, capture_output=True, text=True, check=False).stdout
