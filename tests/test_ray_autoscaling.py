"""Workers that follow the load on a Ray cluster whose nodes follow them: asked for, and given back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests

from harness.answers import checking_clients
from harness.ray_autoscaling import autoscaling_cluster
from harness.server import Server
from harness.wait import until

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(find_spec("ray") is None, reason="needs ray")]

APP = """
import time

import jitney


@jitney.endpoint(queue=1000, workers=1, max_workers=3, startup_timeout_s=600)
def slow(number: int) -> int:
    time.sleep(0.2)
    return 2 * number
"""

SECONDS = 300.0
"""A node takes some seconds to come, and a load that is over is known to be over after half a minute."""


def serve(start: Callable[..., Server], address: str, folder: Path) -> Server:
    (folder / "app.py").write_text(APP)
    flags = ["--ray", address, "--python", sys.executable]
    return start("serve", "app.py:slow", *flags, cwd=folder, env={"RAY_AUTH_MODE": "disabled"}, start_seconds=SECONDS)


def ask(server: Server) -> None:
    answer = requests.post(server.url("/slow"), json={"number": 2}, timeout=60)
    assert (answer.status_code, answer.json()) == (200, 4)


def test_nodes_come_with_the_workers_that_the_load_needs_and_go_with_them(start: Callable[..., Server], tmp_path: Path):
    with autoscaling_cluster(3) as cluster:
        server = serve(start, cluster.address, tmp_path)
        assert cluster.nodes() == 1, "one for the only worker"
        ask(server)
        with checking_clients(server.address, "/slow", 12) as tally:
            until(lambda: len(server.ready("slow")) == 3, "three workers", SECONDS, poll=0.1)
            until(lambda: cluster.nodes() == 3, "a node for each", SECONDS, poll=0.3)
            seen = tally.right
            until(lambda: tally.right > seen + 50, "they answer")
        assert (tally.lost, tally.wrong) == ([], [])
        until(lambda: cluster.nodes() == 1, "nodes without a worker are given back", SECONDS, poll=0.3)
        assert len(server.ready("slow")) == 1
        ask(server)


def test_a_worker_that_waits_for_a_node_is_no_longer_asked_for_when_the_load_is_over(
    start: Callable[..., Server], tmp_path: Path
):
    with autoscaling_cluster(2) as cluster:
        server = serve(start, cluster.address, tmp_path)
        with checking_clients(server.address, "/slow", 12) as tally:
            until(lambda: len(server.ready("slow")) == 2, "two workers", SECONDS, poll=0.1)
            until(cluster.waiting, "a third one is asked for", SECONDS, poll=0.3)
            waits = [one.get("progress") for one in server.describe("slow")["workers"] if one["status"] != "READY"]
            assert "waiting for a place" in str(waits)
        assert (tally.lost, tally.wrong) == ([], [])
        until(lambda: not cluster.waiting() and cluster.nodes() == 1, "asked for no longer", SECONDS, poll=0.3)
        ask(server)
