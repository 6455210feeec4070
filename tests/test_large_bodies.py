"""Large bodies reach handlers and definitions as they were sent, whatever handlers do with what they got."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.client import later, together
from harness.processes import open_files
from harness.server import Server
from harness.wait import until

SIZES = [(256 << 10) - 1, 256 << 10, 1 << 20, 6_000_000]

DEFINITION = """
import hashlib

import jitney


@jitney.batch(max_batch_size=4)
def digest(data: list[bytes]) -> list[str]:
    return [f"{type(one).__name__} {hashlib.sha256(one).hexdigest()}" for one in data]
"""


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes in which a piece that is lost, doubled or moved shows."""
    return random.Random(size + seed).randbytes(size)


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_bodies_of_any_size_share_a_batch_and_arrive_whole(shared: Server) -> None:
    model = shared.need("scribbler", "scribbler", batch_size=len(SIZES), max_batch_delay=600_000)
    bodies = [noise(size) for size in SIZES]
    for _ in range(2):  # The second time into buffers over which the handler has scribbled.
        replies = together([lambda body=body: shared.predict(model, body) for body in bodies])
        assert [reply.json() for reply in replies] == [
            {"type": "bytearray", "size": len(body), "hash": digest(body), "batch": len(SIZES)} for body in bodies
        ]


def test_a_batch_that_is_run_again_in_halves_has_the_bodies_that_were_sent(shared: Server) -> None:
    model = shared.need("rescribbler", "scribbler", batch_size=4, max_batch_delay=600_000)
    bodies = [noise(1 << 20, seed) for seed in range(3)] + [b"!" + noise(1 << 20)]
    replies = together([lambda body=body: shared.predict(model, body) for body in bodies])
    assert [reply.json()["hash"] for reply in replies] == [digest(body) for body in bodies]
    assert replies[-1].json()["batch"] == 1


def test_a_definition_gets_large_bodies_whole(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "large_app.py").write_text(DEFINITION)
    server = start("serve", "large_app:digest", cwd=tmp_path)
    bodies = [noise(size) for size in SIZES]
    replies = together([lambda body=body: server.predict("digest", body) for body in bodies])
    assert [reply.text for reply in replies] == [f"bytes {digest(body)}" for body in bodies]


@pytest.mark.parametrize("part", ["file", "field"])
def test_a_large_part_of_a_form_arrives_whole(shared: Server, part: str) -> None:
    body = noise(1 << 20).hex().encode()
    sent = {"files": {"data": body}} if part == "file" else {"files": {"data": (None, body)}}
    assert requests.post(shared.url("/predictions/echo"), timeout=120, **sent).content == body


def test_a_worker_that_is_killed_while_it_receives_large_bodies_leaves_nothing_open(shared: Server) -> None:
    model = shared.need("lost_scribbler", "scribbler", batch_size=4)
    bodies = [noise(1 << 20, seed) for seed in range(4)]
    assert shared.predict(model, bodies[0]).json()["hash"] == digest(bodies[0])
    before = open_files(shared.pid)
    for _ in range(2):
        asked = shared.metric("jitney_requests_total", model)
        [victim] = shared.ready(model).values()
        os.kill(victim, signal.SIGSTOP)  # It takes nothing more: its socket fills up, the rest waits in the server.
        calls = [later(lambda body=body: shared.predict(model, body).json()["hash"]) for body in bodies]
        until(lambda asked=asked: shared.metric("jitney_requests_total", model) == asked + 4, "all have come")
        until(lambda: shared.metric("jitney_waiting", model) < 4, "the worker was given a batch")
        os.kill(victim, signal.SIGKILL)
        assert [call.result() for call in calls] == [digest(body) for body in bodies]
    until(lambda: open_files(shared.pid) <= before, "the server has closed what it had opened")
