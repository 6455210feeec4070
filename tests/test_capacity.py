"""Workers that follow the load: more while requests come, none where nobody asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import requests

from harness.answers import checking_clients
from harness.server import Server
from harness.wait import until

APP = """
import time

import jitney


@jitney.endpoint(name="slow", queue=1000)
def slow(number: int) -> int:
    time.sleep(0.2)
    return 2 * number
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
