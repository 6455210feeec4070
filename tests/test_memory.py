"""Models that are loaded when somebody asks for them, within a budget of memory."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
import requests

from harness import onnx, processes
from harness.archives import Store
from harness.gate import Gate
from harness.server import ASK_SECONDS, Server
from harness.wait import until

Start = Callable[..., Server]

MODEL = """
HELD = b"x" * ({mebibytes} << 20)


def handle(data, context):
    return ["{name} " + bytes(row["body"]).decode() for row in data or []]
"""
"""A worker of it holds so much and about 10 MiB."""

GROWS = """
HELD = []


def handle(data, context):
    HELD.extend(b"x" * (100 << 20) for row in data or [] if bytes(row["body"]) == b"grow")
    return ["grown" for _ in data or []]
"""

SHARES = """
import mmap

with open({weights!r}, "rb") as file:
    MAPPED = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
READ = MAPPED[::4096]


def handle(data, context):
    return ["{name} " + bytes(row["body"]).decode() for row in data or []]
"""
"""Workers that map the same file hold its pages together."""

BUSY = """
import time

HELD = b"x" * (40 << 20)


def handle(data, context):
    time.sleep(0.2)
    return ["done" for _ in data or []]
"""

BROKEN = """
HELD = b"x" * (40 << 20)
raise RuntimeError("halfway")
"""

SLOW = """
import pathlib
import time

pathlib.Path({arrived!r}).touch()
while not pathlib.Path({opened!r}).exists():
    time.sleep(0.05)
"""


def model(store: Store, name: str, mebibytes: int = 40) -> str:
    store.mar(name, source=MODEL.format(name=name, mebibytes=mebibytes))
    return name


def serve(start: Start, store: Store, memory: str, *more: str) -> Server:
    return start("serve", store.path, "--load", "on_demand", "--memory", memory, "--startup-wait", "1200s", *more)


def states(server: Server) -> dict[str, str]:
    return {one["name"]: one["state"] for one in server.manage("GET", "/overview").json()["models"]}


def asked(server: Server, name: str) -> None:
    """On a busy machine one load takes seconds, and as long as sizes are unknown they come one by one."""
    answer = requests.post(server.url(f"/predictions/{name}"), b"hello", timeout=10 * ASK_SECONDS)
    assert (answer.status_code, answer.text) == (200, f"{name} hello"), answer.text


def is_python(pid: int) -> bool:
    return any(b"python" in word for word in processes.command(pid)[:1])


def watched(server: Server) -> AbstractContextManager[list[int]]:
    """The memory of all workers: not the server itself, nor the program beside it that ends its processes."""
    return processes.memory_of(lambda: [pid for pid in processes.marked(server.mark) if is_python(pid)])


def test_many_clients_ask_for_many_models_and_memory_is_for_five(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    names = [model(store, f"m{number}") for number in range(25)]
    server = serve(start, store, "320MiB")
    assert set(states(server).values()) == {"known"}
    assert requests.get(server.url("/ping")).json()["status"] == "Healthy"
    assert requests.get(server.url("/v2/models/m7/ready")).status_code == 200
    asks = [name for name in names for _ in range(2)]
    random.Random(1).shuffle(asks)
    with watched(server) as samples, ThreadPoolExecutor(50) as clients:
        for done in [clients.submit(asked, server, name) for name in asks]:
            done.result()
    assert 200 << 20 < max(samples) <= 320 << 20, f"{max(samples) >> 20} MiB"
    assert set(states(server).values()) <= {"known", "ready", "leaving"}


def test_what_models_share_is_not_free_before_all_of_them_have_left(start: Start, tmp_path: Path) -> None:
    store, weights = Store(tmp_path / "models"), tmp_path / "weights"
    weights.write_bytes(b"w" * (60 << 20))
    sharers = ["one", "two", "three"]
    for name in sharers:
        store.mar(name, source=SHARES.format(name=name, weights=str(weights)))
    others = [model(store, name) for name in ("fourth", "fifth")]
    server = serve(start, store, "170MiB")
    with watched(server) as samples:
        for name in (sharers + others) * 4:
            asked(server, name)
    # A look that falls into a load may count pages twice that are just becoming shared; the next one does not.
    held = max(map(min, pairwise(samples)))
    assert 100 << 20 < held <= 170 << 20, f"{held >> 20} MiB"


def test_two_loads_that_need_the_same_memory_come_one_after_the_other(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    names = [model(store, name) for name in ("one", "two")]
    server = serve(start, store, "90MiB")
    with watched(server) as samples, ThreadPoolExecutor(2) as clients:
        for done in [clients.submit(asked, server, name) for name in names * 3]:
            done.result()
    assert 40 << 20 < max(samples) <= 90 << 20, f"{max(samples) >> 20} MiB"
    until(lambda: sorted(states(server).values()) == ["known", "ready"], "one is loaded")


def test_what_does_not_fit_is_told_with_the_sum(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    model(store, "small", 1)
    model(store, "large", 200)
    server = serve(start, store, "120MiB")
    for _ in range(2):
        answer = server.predict("large", b"hello")
        assert answer.status_code == 507, answer.text
        assert "it needs 2" in answer.text and "memory=120 MiB is for all of them" in answer.text, answer.text
        asked(server, "small")
    until(lambda: states(server) == {"large": "known", "small": "ready"}, "the small one stays")


def test_a_budget_smaller_than_the_smallest_model_loads_nothing(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    model(store, "m")
    server = serve(start, store, "10MiB")
    answer = server.predict("m", b"hello")
    assert answer.status_code == 507 and "memory=10 MiB" in answer.text, answer.text
    assert server.workers("m") == {}
    assert requests.get(server.url("/ping")).json()["status"] == "Healthy"


def test_a_load_that_fails_halfway_gives_its_memory_back(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    store.mar("broken", source=BROKEN)
    model(store, "good")
    server = serve(start, store, "90MiB")
    answer = server.predict("broken", b"hello")
    assert answer.status_code == 503 and "halfway" in answer.text, answer.text
    asked(server, "good")


def test_one_that_is_to_be_kept_stays_and_the_other_is_told_so(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    for name in ("kept", "other"):
        model(store, name)
    settings = ["--model-store", store.path, "--memory", "100MiB", "--startup-wait", "1200s"]
    server = start("serve", store.mar("echo"), *settings)
    for name, keep in (("kept", "true"), ("other", "false")):
        url = f"{name}.mar"
        done = server.manage("POST", "/models", url=url, load="on_demand", keep=keep)
        assert done.status_code == 200, done.text
    assert states(server) == {"echo": "ready", "kept": "known", "other": "known"}
    asked(server, "other")
    asked(server, "kept")
    until(lambda: states(server) == {"echo": "ready", "kept": "ready", "other": "known"}, "the other left")
    answer = server.predict("other", b"hello")
    assert answer.status_code == 507 and "models that stay hold" in answer.text, answer.text


def test_the_server_ends_while_a_model_loads(start: Start, tmp_path: Path) -> None:
    store, gate = Store(tmp_path / "models"), Gate(tmp_path)
    store.mar("slow", source=SLOW.format(arrived=str(gate.arrived), opened=str(gate.opened)))
    server = serve(start, store, "90MiB", "--drain-timeout", "1s")
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(requests.post, server.url("/predictions/slow"), b"hello", timeout=ASK_SECONDS)
        gate.wait()
        assert states(server) == {"slow": "loading"}
        server.terminate()
        assert server.wait() is not None
        assert answer.exception() or answer.result().status_code == 503
    assert server.orphans() == []


def test_when_a_model_grows_after_its_load_one_leaves(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    store.mar("grows", source=GROWS)
    model(store, "idle", 20)
    server = serve(start, store, "130MiB")
    assert server.predict("grows", b"hello").text == "grown"
    asked(server, "idle")
    assert server.predict("grows", b"grow").text == "grown"
    until(lambda: sorted(states(server).values()) == ["known", "ready"], "one leaves, though no load waits")
    left = re.findall(r"^jitney_leaves_total\{.*\} (\d+)", server.metrics(), re.MULTILINE)
    assert sum(map(int, left)) == 1, left


@pytest.mark.heavy
def test_a_thousand_clients_ask_for_a_thousand_models_at_once(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    names = [model(store, f"m{number}", 1) for number in range(1000)]
    server = start("serve", store.path, "--load", "on_demand", "--memory", "120MiB", "--startup-wait", "20s")

    def outcome(name: str) -> int:
        answer = requests.post(server.url(f"/predictions/{name}"), b"hello", timeout=10 * ASK_SECONDS)
        assert answer.text == f"{name} hello" or "still loading" in answer.text, answer.text
        return answer.status_code

    with watched(server) as samples, ThreadPoolExecutor(1000) as clients:
        outcomes = set(clients.map(outcome, names))
    assert outcomes <= {200, 503}, outcomes
    assert max(samples) <= 120 << 20, f"{max(samples) >> 20} MiB"
    until(lambda: server.predict("m7", b"hello").status_code == 200, "the server goes on")


def test_workers_that_follow_the_load_stay_within_the_memory(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    store.mar("busy", source=BUSY)
    server = start("serve", store.path, "--memory", "150MiB", "--max-workers", "4")

    told, over = [""], Event()

    def ask() -> None:
        while not over.is_set():
            assert server.predict("busy", b"x").text == "done"

    def is_bounded() -> bool:
        told.append(server.describe("busy").get("capacity", ""))
        return told[-1].endswith("and memory is for 2")

    with ThreadPoolExecutor(16) as clients:
        asking = [clients.submit(ask) for _ in range(16)]
        try:
            until(is_bounded, "there is no memory for a third worker")
        finally:
            over.set()
        for done in asking:
            done.result()
    assert told[-1].startswith("2 of 1 to 4 workers: "), told[-1]
    assert len(server.workers("busy")) == 2


def total(path: Path) -> None:
    """`y` is the sum of all of `x`, and declares rows of its own: such requests must not share a batch."""
    step = onnx.node("ReduceSum", ["x"], "y", onnx.whole_attribute("keepdims", 1))
    rows = [onnx.value(name, onnx.FLOAT, ["n", 1]) for name in ("x", "y")]
    onnx.write(path, [step], rows[:1], rows[1:])


def test_an_onnx_model_is_known_by_its_file_and_loaded_by_the_first_request(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    total(store.path / "total.onnx")
    server = serve(start, store, "200MiB", "--batch-size", "8")
    assert states(server) == {"total": "known"} and server.workers("total") == {}
    declared = requests.get(server.url("/v2/models/total")).json()["inputs"]
    assert declared == [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}]

    def summed(number: float) -> float:
        rows = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [number]}]}
        answer = requests.post(server.url("/v2/models/total/infer"), json=rows, timeout=10 * ASK_SECONDS)
        assert answer.status_code == 200, answer.text
        return answer.json()["outputs"][0]["data"][0]

    with ThreadPoolExecutor(16) as clients:
        assert list(clients.map(summed, map(float, range(64)))) == list(map(float, range(64)))
    assert states(server) == {"total": "ready"}
