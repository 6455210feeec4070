"""Python workers with limits: a request that needs too much fails alone, and a worker that keeps too much, or has run
enough, is replaced by one that is ready before it goes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import requests

from harness.client import together
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

    @jitney.batch(max_batch_size=4, max_batch_delay_ms=600_000)
    def share(self, mebibytes: list[int]) -> list[int]:
        return [len(b"x" * (one << 20)) >> 20 for one in mebibytes]

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


@pytest.fixture
def group() -> Iterator[list[str]]:
    """What runs a command in a control group beside which others can be made, of version 2, as systemd prepares it."""
    own = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    base = Path("/sys/fs/cgroup") / (own[1] if own else "")
    handed = base / "cgroup.subtree_control"
    if not handed.exists() or "memory" not in handed.read_text().split():
        pytest.skip(f"no control groups of version 2 with limits of memory at {base}: only RLIMIT is tested here")
    delegated = base / f"jitney-test-{os.getpid()}"
    server = delegated / "server"
    try:
        server.mkdir(parents=True)
        (delegated / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        pytest.skip(f"control groups may not be made here ({error}): only RLIMIT is tested")
    yield ["sh", "-c", f'echo $$ > {server}/cgroup.procs && exec "$@"', "sh"]
    until(lambda: not (server / "cgroup.procs").read_text(), "the server has ended")
    for folder in (*delegated.glob("*/"), delegated):
        folder.rmdir()


def check_neighbours(server: Server) -> None:
    """One request of a batch needs more than the limit: the others are answered."""
    requests = [partial(ask, server, "share", mebibytes) for mebibytes in (1, 2000, 2, 3)]
    one, beyond, *others = together(requests)
    assert (one.json(), [answer.json() for answer in others]) == (1, [2, 3])
    assert (beyond.status_code, "memory_limit" in beyond.text) == (507, True), beyond.text


def test_the_neighbours_of_a_request_beyond_the_memory_limit_are_answered(
    start: Callable[..., Server], home: Path
) -> None:
    check_neighbours(start("serve", "app.py:Eater", "--memory-limit", "500MiB", cwd=home))


def test_the_same_where_the_kernel_ends_the_worker(start: Callable[..., Server], home: Path, group: list[str]) -> None:
    server = start("serve", "app.py:Eater", "--memory-limit", "500MiB", cwd=home, under=group)
    (pid,) = server.ready("Eater").values()
    assert "jitney-worker-" in Path(f"/proc/{pid}/cgroup").read_text(), "the worker has a group of its own"
    check_neighbours(server)
    assert pid not in server.ready("Eater").values(), "the kernel has ended it"


def test_a_request_whose_library_aborts_for_memory_is_told_so(start: Callable[..., Server], home: Path) -> None:
    server = start("serve", "app.py:Eater", "--memory-limit", "500MiB", cwd=home)
    beyond = ask(server, "abort", 1)
    assert (beyond.status_code, "than its memory_limit allows" in beyond.text) == (507, True), beyond.text
    assert ask(server, "eat", 1).json() == 1


def test_a_worker_that_has_run_enough_requests_is_replaced(start: Callable[..., Server], home: Path) -> None:
    server = start("serve", "app.py:Eater", "--max-requests-per-worker", "3", cwd=home)
    (pid,) = server.ready("Eater").values()
    until(replaced(server, pid), "another worker serves")
