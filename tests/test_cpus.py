"""Workers kept to processors of their own, and the threads of ONNX workers: when they start, when they are forked, when
their number changes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import onnx
from harness.archives import Store
from harness.server import Server
from harness.wait import until

CPUS = sorted(os.sched_getaffinity(0))
THREADED = """
import os, subprocess, threading

wait = threading.Event().wait
for _ in range(2):
    threading.Thread(target=wait, daemon=True).start()
child = subprocess.Popen(["sleep", "3600"])

def handle(data, context):
    return data and [os.environ["OMP_NUM_THREADS"]] * len(data)
"""
"""Has threads and a child, which are moved with it, and answers with how many threads it may compute with."""


def affinities(pid: int) -> list[set[int]]:
    """Where each thread of a process and of its children may run."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found.append(os.sched_getaffinity(int(task.name)))
        for child in (task / "children").read_text().split():
            found += affinities(int(child))
    return found


def listed(text: str) -> set[int]:
    """The processors of a list such as `0-3,8`."""
    ranges = [part.split("-") for part in text.split(",")]
    return {cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)}


def said(server: Server, model: str) -> list[set[int]]:
    """What the server says of each worker."""
    return [listed(worker["cpus"]) for worker in server.describe(model)["workers"]]


def shares(server: Server, model: str, workers: int, cpus: list[int]) -> list[set[int]]:
    """The processors of so many workers. All are used, and while there are enough nobody shares one. They are there
    once who had to leave has left, and then each thread of each worker is really kept to them."""
    total = max(len(cpus), workers)
    until(
        lambda: (now := said(server, model)) and set().union(*now) == set(cpus) and sum(map(len, now)) == total,
        "the processors are shared out",
    )
    found = server.describe(model)["workers"]
    assert len(found) == workers
    for worker in found:
        own = listed(worker["cpus"])
        until(lambda pid=worker["pid"], own=own: all(it == own for it in affinities(pid)), "all threads are there")
    return [listed(worker["cpus"]) for worker in found]


def scale(server: Server, model: str, workers: int) -> None:
    """Waits until there are so many."""
    reply = server.manage("PUT", f"/models/{model}", min_worker=workers, max_worker=workers, synchronous="true")
    assert reply.status_code == 200, reply.text
    until(lambda: len(server.workers(model)) == workers, "the others have left")


@pytest.mark.parametrize("preload", [(), ("--preload", "json")], ids=["started", "forked"])
def test_workers_share_out_the_processors_and_move_when_they_are_more_or_fewer(
    start: Callable[..., Server], store: Store, preload: tuple[str, ...]
) -> None:
    server = start("serve", store.mar("threaded", source=THREADED), "--cpus", "auto", "--workers", "2", *preload)
    for workers in (2, 1, 3, 2):
        scale(server, "threaded", workers)
        sets = shares(server, "threaded", workers, CPUS)
        if "OMP_NUM_THREADS" not in os.environ:
            assert server.predict("threaded", b"").text in {str(len(cpus)) for cpus in sets}
    (model,) = server.manage("GET", "/overview").json()["models"]
    assert [listed(worker["cpus"]) for worker in model["workers"]] == sets


def test_a_worker_that_is_started_again_has_its_processors(start: Callable[..., Server], store: Store) -> None:
    server = start("serve", store.mar("orders"), "--cpus", "auto", "--workers", "2")
    before = shares(server, "orders", 2, CPUS)
    pids = set(server.ready("orders").values())
    os.kill(min(pids), 9)
    until(lambda: len(set(server.ready("orders").values()) | pids) == 3 and len(server.ready("orders")) == 2, "two")
    assert shares(server, "orders", 2, CPUS) == before


def test_onnx_workers_share_out_named_processors(start: Callable[..., Server], tmp_path: Path) -> None:
    model = next(Path(__file__).parent.parent.joinpath("models/magika").glob("*.onnx"))
    server = start("serve", f"magika={model}", "--cpus", ",".join(map(str, CPUS[-2:])), "--workers", "2")
    shares(server, "magika", 2, CPUS[-2:])
    scale(server, "magika", 1)
    shares(server, "magika", 1, CPUS[-2:])


@pytest.mark.parametrize("engine", ["builtin", "onnxruntime"])
@pytest.mark.parametrize("threads", [None, 2])
def test_the_threads_of_onnx_workers_follow_their_number(
    start: Callable[..., Server], tmp_path: Path, engine: str, threads: int | None
) -> None:
    flags = ["--onnx-engine", engine, *(["--onnx-threads", str(threads)] if threads else [])]
    if engine == "onnxruntime":
        flags += ["--onnx-library", str(Path(pytest.importorskip("onnxruntime").__file__).parent / "capi")]
    server = start("serve", onnx.projection(tmp_path / "net.onnx"), *flags)
    (first,) = server.ready("net").values()

    def ask(_: int) -> bool:
        return server.predict("net", [[[1, 1, 1]]]).json() == [[[6.0]]]

    # The built-in engine has a pool for loading and one for running; those that tried the model go.
    until(lambda: ask(0) and tasks(first).count("rten-0") in (0, 2), "the pools are there")
    before = len(tasks(first))
    fewer = 0 if threads else len(CPUS) - max(1, len(CPUS) // 2)
    with ThreadPoolExecutor(4) as clients:
        for workers, expected in [(1, before), (2, before - fewer), (1, before)]:
            scale(server, "net", workers)
            assert first in server.ready("net").values(), "it is the same process"
            # Each worker is told with its next batch; all answers are right meanwhile.
            until(
                lambda workers=workers, expected=expected: (
                    all(clients.map(ask, range(4)))
                    and [len(tasks(pid)) for pid in server.ready("net").values()] == [expected] * workers
                ),
                f"{workers} with {expected} threads each",
            )


def tasks(pid: int) -> list[str]:
    """The names of the threads of a process. Who ends meanwhile is no longer there."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found.append((task / "comm").read_text().strip())
    return found


def test_models_choose_for_themselves(shared: Server) -> None:
    kept = shared.store.mar("kept", "echo", config="jitney: {cpus: auto}\n")
    shared.register(kept)
    shares(shared, "kept", 1, CPUS)
    shared.register(shared.store.mar("free", "echo"), cpus="none")
    assert "cpus" not in shared.describe("free")["workers"][0]


def test_a_definition_says_it_in_its_decorator(start: Callable[..., Server], tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "import jitney\n\n\n@jitney.batch(cpus='auto', workers=2)\ndef same(x: list[int]) -> list[int]:\n    return x\n"
    )
    shares(start("serve", f"{app}:same"), "same", 2, CPUS)


def test_processors_that_there_are_not_are_named(shared: Server) -> None:
    archive = shared.store.mar("elsewhere", "echo")
    reply = shared.manage("POST", "/models", url=archive.name, cpus="1023")
    assert reply.status_code == 400
    assert "cpus: the server may not use 1023, only " in reply.json()["message"]
    reply = shared.manage("POST", "/models", url=archive.name, cpus="many")
    assert reply.status_code == 400
    assert "auto, none, or processors such as 0-3,8" in reply.json()["message"]
