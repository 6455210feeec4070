"""Python workers with limits: a request that needs too much fails alone, and a worker that keeps too much, or has run
enough, is replaced by one that is ready before it goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import requests

from harness.server import ASK_SECONDS, Server
from harness.wait import until

APP = """
import os
import sys

import jitney

kept = []


@jitney.model(workers=1)
class Eater:
    @jitney.endpoint
    def eat(self, mebibytes: int) -> int:
        return len(bytearray(mebibytes << 20)) >> 20

    @jitney.endpoint
    def abort(self, mebibytes: int) -> int:
        # As a library in C++ does that gets no memory.
        print("terminate called\\n  what():  std::bad_alloc", file=sys.stderr, flush=True)
        os.abort()

    @jitney.endpoint
    def keep(self, mebibytes: int) -> int:
        kept.append(b"x" * (mebibytes << 20))
        return os.getpid()
"""


def ask(server: Server, endpoint: str, mebibytes: int) -> requests.Response:
    url = f"{server.urls['inference']}/Eater/{endpoint}"
    return requests.post(url, json={"mebibytes": mebibytes}, timeout=ASK_SECONDS)


def replaced(server: Server, pid: int) -> Callable[[], bool]:
    """Whether the model has one worker, another one, while every request is answered."""

    def is_over() -> bool:
        answer = ask(server, "keep", 0)
        assert answer.status_code == 200, answer.text
        return pid not in server.ready("Eater").values() and len(server.workers("Eater")) == 1

    return is_over


def test_a_request_beyond_the_memory_limit_fails_alone_and_a_full_worker_is_replaced(
    start: Callable[..., Server], home: Path
) -> None:
    server = start("serve", "app.py:Eater", "--memory-limit", "500MiB", cwd=home)
    assert server.describe("Eater")["memoryLimit"] == 500 << 20
    (pid,) = server.ready("Eater").values()
    assert ask(server, "eat", 100).json() == 100
    beyond = ask(server, "eat", 2000)
    assert (beyond.status_code, "raise its memory_limit" in beyond.text) == (507, True), beyond.text
    assert ask(server, "keep", 200).json() == pid, "the worker goes on"
    assert ask(server, "keep", 200).status_code == 200
    until(replaced(server, pid), "another worker serves")


def test_a_request_whose_library_aborts_for_memory_is_told_so(start: Callable[..., Server], home: Path) -> None:
    server = start("serve", "app.py:Eater", "--memory-limit", "500MiB", cwd=home)
    beyond = ask(server, "abort", 1)
    assert (beyond.status_code, "than its memory_limit allows" in beyond.text) == (507, True), beyond.text
    assert ask(server, "eat", 1).json() == 1


def test_a_worker_that_has_run_enough_requests_is_replaced(start: Callable[..., Server], home: Path) -> None:
    server = start("serve", "app.py:Eater", "--max-requests-per-worker", "3", cwd=home)
    (pid,) = server.ready("Eater").values()
    until(replaced(server, pid), "another worker serves")
