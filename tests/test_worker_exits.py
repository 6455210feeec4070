"""Workers end whole: with their children, with their server, without a trace in it; and requests that end them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.archives import Store
from harness.client import later
from harness.processes import is_alive, marked, open_files
from harness.server import FREE_PORTS, Server
from harness.shape import assert_problem
from harness.wait import until


@pytest.fixture
def server(start: Callable[..., Server], store: Store) -> Server:
    """One worker that starts children when it is told to."""
    return start("serve", store.mar("begetter"), "--workers", "1", store=store)


def child_of(server: Server) -> int:
    """The pid of a child that the worker has just started."""
    return server.predict("begetter", {"child": True}).json()["child"]


def gone(pid: int) -> None:
    """Waits until a process has ended."""
    until(lambda: not is_alive(pid), f"process {pid} has ended")


def threads(pid: int) -> int:
    """How many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@pytest.mark.parametrize("how", ["asked", "unregistered", "exits", "killed"])
def test_the_children_of_a_worker_end_with_it(server: Server, how: str) -> None:
    child = child_of(server)
    assert is_alive(child)
    if how == "asked":
        query = {"min_worker": 0, "max_worker": 0, "synchronous": "true"}
        assert server.manage("PUT", "/models/begetter", **query).status_code == 200
    elif how == "unregistered":
        assert server.manage("DELETE", "/models/begetter").status_code == 200
    elif how == "exits":
        server.predict("begetter", {"exit": 3})
    else:
        os.kill(server.ready("begetter").popitem()[1], signal.SIGKILL)
    gone(child)


def test_a_worker_that_hangs_is_ended_with_its_children_when_its_time_is_over(
    start: Callable[..., Server], store: Store
) -> None:
    archive = store.mar("begetter", config="responseTimeout: 1\n")
    server = start("serve", archive, "--workers", "1", store=store)
    reply = server.predict("begetter", {"child": True, "hang": True})
    assert reply.status_code == 500, reply.text
    for child in re.findall(r"hanging with child (\d+)", server.log):
        gone(int(child))


@pytest.mark.parametrize("guarded", [True, False])
def test_workers_end_with_a_server_that_is_killed(start: Callable[..., Server], store: Store, guarded: bool) -> None:
    """The guard ends their children as well; without it the kernel still ends the workers."""
    server = start("serve", store.mar("begetter"), "--workers", "1", store=store)
    child = child_of(server)
    worker = server.ready("begetter").popitem()[1]
    hangs = later(lambda: server.predict("begetter", {"child": True, "hang": True}))
    server.logged("hanging with child")
    guard = guard_of(server)
    if not guarded:
        os.kill(guard, signal.SIGKILL)
    scratch = list(server.temp.glob("jitney-*"))
    assert len(scratch) == 1
    server.process.kill()
    server.process.wait()
    gone(worker)
    with pytest.raises(Exception):  # noqa: B017  whatever requests makes of a connection that is gone
        hangs.result()
    if not guarded:
        os.kill(child, signal.SIGKILL)
        [os.kill(pid, signal.SIGKILL) for pid in marked(server.mark)]
        return
    gone(child)
    assert not server.orphans()
    gone(guard)
    assert scratch[0].exists()
    again = start("serve", store.path / "begetter.mar", store=store, env={"TMPDIR": str(server.temp)})
    until(lambda: not scratch[0].exists(), "the next server removes what the killed one left")
    assert len(list(server.temp.glob("jitney-*"))) == 1
    again.end()


def guard_of(server: Server) -> int:
    """The pid of the server's guard."""
    children = Path(f"/proc/{server.pid}/task").glob("*/children")
    pids = [int(pid) for file in children for pid in file.read_text().split()]
    return next(pid for pid in pids if b"guard-groups" in Path(f"/proc/{pid}/cmdline").read_bytes())


@pytest.mark.parametrize("rounds", [5, pytest.param(250, marks=pytest.mark.heavy)])
def test_exits_leave_nothing_behind_in_the_server(start: Callable[..., Server], store: Store, rounds: int) -> None:
    """Four workers each round, some with a child that holds their output."""
    server = start("serve", store.mar("begetter"), "--workers", "4", store=store)

    def held() -> tuple[int, int, int]:
        return threads(server.pid), open_files(server.pid), len(marked(server.mark))

    def replace_all() -> None:
        for _ in range(4):
            child_of(server)
        pids = set(server.ready("begetter").values())
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(set(server.ready("begetter").values()) - pids) == 4, "all workers are replaced")

    replace_all()
    before = held()
    for _ in range(rounds):
        replace_all()
    try:
        until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)), "all is as before", 60)
    finally:
        print(f"{4 * rounds} exits: threads, descriptors, processes {before} before, {held()} after")


def test_a_child_that_left_the_group_holds_nothing_of_the_server(server: Server) -> None:
    """It is out of reach, and lives on; the server does not wait for its output."""
    before = open_files(server.pid)
    child = server.predict("begetter", {"child": True, "leaves": True}).json()["child"]
    pid = server.ready("begetter").popitem()[1]
    os.kill(pid, signal.SIGKILL)
    try:
        until(lambda: server.ready("begetter").get("9000", pid) != pid, "the worker is replaced")
        until(lambda: open_files(server.pid) <= before, "its pipes are closed")
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


# -- requests that end workers -----------------------------------------------------------------


def test_a_request_that_ended_two_workers_is_rejected_and_others_are_served(server: Server) -> None:
    assert_problem(server.predict("begetter", {"exit": 3}), 500, "InternalServerException", "(exit status 3)")
    until(lambda: server.ready("begetter"), "the worker is back")
    pid = server.ready("begetter").popitem()[1]
    for number in range(20):
        reply = server.predict("begetter", {"exit": 3}, headers={"x-request-id": str(number)})
        assert reply.status_code == 400, reply.text
        assert "[reason: poison]" in reply.json()["message"]
    assert server.predict("begetter", {"id": 1}).json()["worker"] == pid, "no worker has ended"
    assert server.metric("jitney_rejections_total", "begetter", reason="poison") == 20
    assert server.predict("begetter", {"exit": 4}).status_code == 500, "another request is tried"


def test_a_model_is_never_given_up_because_of_its_requests(start: Callable[..., Server], store: Store) -> None:
    archive = store.mar("begetter", config="maxRetryTimeoutInSec: 1\n")
    server = start("serve", archive, "--workers", "1", store=store)
    for number in range(6):
        assert server.predict("begetter", {"exit": 3, "number": number}).status_code == 500
    assert server.predict("begetter", {"id": 1}).status_code == 200
    assert "given up" not in server.log


# -- how many ------------------------------------------------------------------------------------


def test_nobody_gets_more_workers_than_a_model_may_have(start: Callable[..., Server], store: Store) -> None:
    flags = ("--max-workers-per-model", "2", "--model-store", store.path)
    server = start("serve", store.mar("begetter"), *flags, store=store)
    store.mar("bomb", "begetter", config="minWorkers: 100000\nmaxWorkers: 100000\n")
    too_many = "are more than max_workers_per_model=2 allows"
    for query in [{"url": "bomb.mar"}, {"url": "begetter.mar", "model_name": "other", "initial_workers": 3}]:
        reply = server.manage("POST", "/models", **query)
        assert (reply.status_code, too_many in reply.json()["message"]) == (400, True), reply.text
    for query in [{"min_worker": 3}, {"min_worker": 1, "max_worker": 3}]:
        reply = server.manage("PUT", "/models/begetter", **query)
        assert (reply.status_code, too_many in reply.json()["message"]) == (400, True), reply.text
    assert len(server.workers("begetter")) == 1


# -- what a handler sees of its server -------------------------------------------------------------


def test_processes_of_the_same_user_cannot_read_the_server(binary: Path, tmp_path: Path) -> None:
    """Neither its environment nor its directory, where the keys lie. Root reads everything, so somebody else has to."""
    somebody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    with (tmp_path / "out").open("w+b") as out, tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o777)
        program = Path(home, "jitney")
        shutil.copy(binary, program)
        env = {"TMPDIR": home, "PATH": os.environ["PATH"], "SECRET": "hunter2"}
        command = [*somebody, str(program), "demo", *FREE_PORTS]
        with subprocess.Popen(command, cwd=home, env=env, stdout=out, stderr=subprocess.STDOUT) as server:
            try:
                until(lambda: b"Try:" in (tmp_path / "out").read_bytes(), "the server is up")
                for look in (["cat", f"/proc/{server.pid}/environ"], ["readlink", f"/proc/{server.pid}/cwd"]):
                    seen = subprocess.run([*somebody, *look], capture_output=True, check=False)
                    assert (seen.returncode, seen.stdout) == (1, b""), seen
            finally:
                server.terminate()
