"""Workers that follow the load: more while requests come, none where nobody asks."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import requests

from harness.answers import checking_clients
from harness.archives import Store
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

APP = """
import time

import jitney


@jitney.endpoint(name="slow", queue=1000)
def slow(number: int) -> int:
    time.sleep(0.2)
    return 2 * number
"""

HANDLER = """
import time


def handle(data, context):
    if not data:
        return None
    time.sleep(0.2)
    return [2 * (row.get("body") or {"number": 0})["number"] for row in data]
"""


def workers(server: Server) -> int:
    return len(server.describe("slow")["workers"])


def test_more_workers_come_while_requests_do_and_the_reason_is_told(start: Callable[..., Server], tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:slow", "--max-workers", "3", cwd=tmp_path)
    assert workers(server) == 1
    described = server.describe("slow")
    assert (described["minWorkers"], described["maxWorkers"]) == (1, 3)
    with checking_clients(server.address, "/slow", 12) as tally:
        until(lambda: workers(server) == 3, "three workers")
    assert not tally.lost and not tally.wrong
    told = server.describe("slow")["capacity"]
    assert told.startswith("3 of 1 to 3 workers: ") and " requests/s need " in told, told
    page = requests.get(server.urls["metrics"] + "/metrics").text
    assert 'jitney_wanted_workers{model_name="slow"' in page
    overview = server.manage("GET", "/overview").json()
    assert next(model["capacity"] for model in overview["models"]).startswith("3 of 1 to 3 workers: ")
    server.logged("slow: 3 of 1 to 3 workers: ")


def test_the_first_request_starts_a_worker_and_the_last_one_ends_when_nobody_asks(
    start: Callable[..., Server], tmp_path: Path
):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:slow", "--min-workers", "0", "--max-workers", "1", "--idle", "1s", cwd=tmp_path)
    for _ in range(2):
        until(lambda: workers(server) == 0, "no worker")
        assert requests.get(server.urls["inference"] + "/ping").json()["status"] == "Healthy"
        answer = requests.post(server.urls["inference"] + "/slow", json={"number": 2})
        assert (answer.status_code, answer.json()) == (200, 4)


def test_a_definition_may_begin_without_a_worker(start: Callable[..., Server], tmp_path: Path):
    (tmp_path / "app.py").write_text(APP.replace("queue=1000", "queue=1000, workers=0, max_workers=2"))
    server = start("serve", "app:slow", cwd=tmp_path)
    described = server.describe("slow")
    assert (described["minWorkers"], described["maxWorkers"], described["workers"]) == (0, 2, [])
    answer = requests.post(server.urls["inference"] + "/slow", json={"number": 2})
    assert (answer.status_code, answer.json()) == (200, 4)
    assert workers(server) == 1


def test_a_number_that_is_pinned_stays_until_it_is_to_follow_the_load_again(
    start: Callable[..., Server], tmp_path: Path
):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:slow", "--max-workers", "3", cwd=tmp_path)
    server.manage("PUT", "/models/slow", min_worker=1, max_worker=1, synchronous="true")
    with checking_clients(server.address, "/slow", 8) as tally:
        until(lambda: tally.right > 20, "some are answered")
        assert workers(server) == 1
        assert "capacity" not in server.describe("slow")
        server.manage("PUT", "/models/slow", workers="auto", synchronous="true")
        until(lambda: workers(server) == 3, "three workers")


@pytest.fixture
def torchserve(start: Callable[..., Server], tmp_path: Path, store: Store) -> Callable[..., Server]:
    """Starts `jitney torchserve` with the archive `slow`, or from the last snapshot of a server that has ended."""
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + "default_workers_per_model=1\n")

    def torchserve(settings: str | None = None, after: Server | None = None) -> Server:
        flags = ["--foreground", "--disable-token-auth", "--model-store", store.path]
        if after is not None:
            return start("torchserve", "--start", *flags, "--ts-config", after.newest_snapshot())
        store.mar("slow", source=HANDLER, config=settings)
        return start("torchserve", "--start", *flags, "--ts-config", config, "--models", "slow=slow.mar")

    return torchserve


def capacity(server: Server) -> str | None:
    """The reason under `jitney torchserve`: descriptions keep TorchServe's keys unless more is asked for."""
    assert "capacity" not in server.describe("slow")
    return server.manage("GET", "/models/slow", customized="true").json()[0].get("capacity")


def check_that_it_follows_the_load(server: Server) -> None:
    assert workers(server) == 1
    described = server.describe("slow")
    assert (described["minWorkers"], described["maxWorkers"]) == (1, 4)
    with checking_clients(server.address, "/predictions/slow", 12) as tally:
        until(lambda: workers(server) == 4, "four workers")
        told = capacity(server)
    assert not tally.lost and not tally.wrong
    assert told.startswith("4 of 1 to 4 workers: ") and " requests/s need " in told, told
    server.logged("slow: 4 of 1 to 4 workers: ")
    logged = re.findall(r"slow: (\d) of 1 to 4 workers: ", server.log)
    assert all(before != after for before, after in pairwise(["1", *logged])), f"one line for each change: {logged}"


def test_torchserve_follows_the_load_between_two_numbers_of_an_archive(torchserve: Callable[..., Server]):
    check_that_it_follows_the_load(torchserve("minWorkers: 1\nmaxWorkers: 4\n"))


@pytest.mark.parametrize("settings", [None, "minWorkers: 1\nmaxWorkers: 1\n"])
def test_torchserve_keeps_one_number_until_it_is_told_two_and_a_snapshot_has_both(
    torchserve: Callable[..., Server], settings: str | None
):
    server = torchserve(settings)
    with checking_clients(server.address, "/predictions/slow", 8) as tally:
        until(lambda: tally.right > 20, "some are answered")
        assert (workers(server), capacity(server)) == (1, None)
    reply = server.manage("PUT", "/models/slow", min_worker=1, max_worker=4, synchronous="true")
    assert reply.status_code == 200, reply.text
    check_that_it_follows_the_load(server)
    server.end()
    check_that_it_follows_the_load(torchserve(after=server))
