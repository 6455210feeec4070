"""Incidents that really happen: what the first line says of them, and that it is one line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
COMPUTES_ON_ALL_PROCESSORS = """
import hashlib, os
from concurrent.futures import ThreadPoolExecutor

COUNT = 4 * os.cpu_count()
THREADS = ThreadPoolExecutor(COUNT)

def handle(data, context):
    if data:
        list(THREADS.map(lambda _: hashlib.pbkdf2_hmac("sha256", b"x", b"y", 300_000), range(COUNT)))
    return data and ["fine"] * len(data)
"""
COMPUTES_FOR_10_MS = """
import time

def handle(data, context):
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    return data and ["fine"] * len(data)
"""
ENDS_BY_A_FILE = """
import os, pathlib, threading

def handle(data, context):
    if data and pathlib.Path({gate!r}).exists():
        threading.Timer(0.3, os._exit, [3]).start()
    return data and ["fine"] * len(data)
"""
PAST_MS = 45_000
"""The server compares the last twenty seconds with those before."""


def overview(server: Server) -> Any:
    """What the dashboard is told."""
    return server.manage("GET", "/overview").json()


def lines(document: Any, model: str) -> list[Any]:
    """What it is told of a model."""
    return [one for one in document["problems"] if one["model"] == f"{model}/1.0"]


def wait_for_a_past(server: Server) -> None:
    began = until(lambda: overview(server)["sample"], "a sample is there")["time"]
    until(lambda: overview(server)["sample"]["time"] > began + PAST_MS, "there is a past", poll=1.0)


def status(server: Server) -> str:
    command = [str(server.binary), "status", "--url", server.urls["management"]]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@contextmanager
def serving(binary: Path, home: Path, **sources: str) -> Iterator[Server]:
    """A server with a model for each source."""
    store = Store(home / "store")
    archives = [store.mar(name, source=source.format(gate=str(home / "GATE"))) for name, source in sources.items()]
    arguments = ["serve", *archives, "--model-store", store.path]
    server = Server(binary, home / "server", arguments, store=store).started()
    try:
        yield server
    finally:
        server.end()


def test_a_slow_model_is_named_and_not_the_traffic(binary: Path, tmp_path: Path) -> None:
    slower = "the model has become slower: batches of 1 take 4"
    with serving(binary, tmp_path, slow=SLOWED_BY_A_FILE) as server, clients(server, "slow", 4):
        assert server.manage("PUT", "/models/slow", max_latency_ms="1000").ok
        wait_for_a_past(server)
        (tmp_path / "GATE").touch()

        def told() -> str | None:
            whats = [one["what"] for one in lines(overview(server), "slow")]
            return next((what for what in whats if slower in what), None)

        line = until(told, "the model's compute time is named", poll=0.5)
        assert "the offered load is more" not in line, line
        assert slower in status(server)


def test_who_uses_all_processors_is_named_to_the_model_that_suffers(binary: Path, tmp_path: Path) -> None:
    sources = {"quiet": COMPUTES_FOR_10_MS, "loud": COMPUTES_ON_ALL_PROCESSORS}
    with serving(binary, tmp_path, **sources) as server, clients(server, "quiet", 1, pause=0.5):
        wait_for_a_past(server)
        with clients(server, "loud", 2):

            def told() -> Any:
                document = overview(server)
                found = [one for one in lines(document, "quiet") if "use" in one["what"]]
                return found and (document, found[0])

            document, line = until(told, "it is said who uses the processors", poll=0.5)
        machine, loud = document["machine"], document["models"][0]
        assert loud["name"] == "loud"
        used = sum(worker["cpuPercent"] or 0 for worker in loud["workers"]) / machine["processors"]
        # Beside other tests these are the programs that use most; about half may be told either way.
        share = used / machine["cpuPercent"]
        who = ["loud 1.0 uses"] * (share > 0.4) + ["other programs use"] * (share < 0.6)
        assert line["what"].endswith(tuple(f"; {one} the processors" for one in who)), (line, used)
        assert not line["moreWorkersHelp"] and "something else" not in line["advice"], line


def test_a_crash_loop_is_one_line(binary: Path, tmp_path: Path) -> None:
    with serving(binary, tmp_path, ends=ENDS_BY_A_FILE) as server, clients(server, "ends", 4, pause=0.02):
        (tmp_path / "GATE").touch()

        def loop() -> Any:
            found = lines(overview(server), "ends")
            return any(re.search(r"restarted \d+ times", one["what"]) for one in found) and found

        for line in until(loop, "a crash loop is told", poll=0.5):
            assert line["what"].startswith("Worker 9000 of ends 1.0 has been restarted") and "status 3" in line["what"]
        assert len(lines(overview(server), "ends")) == 1
        assert status(server).count("problem: ") == 1
