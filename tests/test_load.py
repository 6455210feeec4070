"""Load: every answer reaches its own caller, and killed workers lose nothing. The long runs need --heavy."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from harness.archives import Store
from harness.load import LoadResult, run_load
from harness.server import Server

CURVE = ("--batch-size", "32", "--max-batch-delay", "10ms", "--queue", "1000")
CONNECTIONS = 64
EVERY_SECONDS = 0.25


def body_of(number: int) -> bytes:
    """A body that no other request has."""
    return b"request %d" % number


def is_own(number: int, status: int, body: bytes) -> bool:
    """The answer is the request's own body."""
    return status == 200 and body == body_of(number)


def load(server: Server, **amount: float) -> LoadResult:
    """The load of the tests, to its end."""
    return asyncio.run(run_load(*server.address, "/predictions/curve", CONNECTIONS, body_of, is_own, **amount))


def load_while(server: Server, disturb: Callable[[], None], enough: Callable[[LoadResult], bool]) -> LoadResult:
    """The same, disturbed again and again until that is enough."""

    async def run() -> LoadResult:
        disturbed = asyncio.create_task(disturbance())
        try:
            return await run_load(*server.address, "/predictions/curve", CONNECTIONS, body_of, is_own, enough=enough)
        finally:
            disturbed.cancel()

    async def disturbance() -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await asyncio.to_thread(disturb)

    return asyncio.run(run())


class Killer:
    """Kills one ready worker after the other, the oldest first, as an operator's script or the kernel would.

    Each time both workers are back and the requests of the last one are answered: no request loses two workers.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.killed: list[int] = []
        self.answered = 0.0

    def __call__(self) -> None:
        """Kills one, if it is time to."""
        ready = [pid for pid in self.server.ready("curve").values() if pid not in self.killed]
        answered = self.server.metric("jitney_requests_answered_total", "curve")
        if len(ready) == 2 and answered >= self.answered + 4 * CONNECTIONS:
            os.kill(ready[0], signal.SIGKILL)
            self.killed.append(ready[0])
            self.answered = answered


def all_well(result: LoadResult) -> None:
    """Nothing lost, nothing wrong."""
    assert (result.lost, result.wrong) == (0, 0), f"{result}\n" + "\n".join(result.examples)
    assert result.answered == result.sent


def test_thousands_of_unique_requests_get_their_own_answers(start, store: Store) -> None:
    server = start("serve", store.mar("curve"), *CURVE)
    result = load(server, requests=3_000)
    all_well(result)
    assert server.metric("jitney_requests_answered_total", "curve") == 3_000
    assert server.metric("jitney_batches_total", "curve") < 3_000, "they share batches"


def test_a_few_killed_workers_lose_nothing(start, store: Store) -> None:
    server = start("serve", store.mar("curve"), *CURVE, "--workers", "2")
    killer = Killer(server)
    all_well(load_while(server, killer, lambda so_far: len(killer.killed) >= 3 and so_far.retried > 0))


def test_management_answers_while_the_data_plane_is_busy(start, store: Store) -> None:
    server = start("serve", store.mar("curve"), *CURVE)
    listed: list[int] = []
    ask = lambda: listed.append(server.manage("GET", "/models").status_code)  # noqa: E731
    all_well(load_while(server, ask, lambda _: len(listed) >= 8))
    assert set(listed) == {200}


@pytest.mark.heavy
def test_a_hundred_thousand_unique_requests_get_their_own_answers(
    start, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start("serve", store.mar("curve"), *CURVE)
    result = load(server, requests=100_000)
    with capsys.disabled():
        print(f"\n  {result}")
    all_well(result)


@pytest.mark.heavy
def test_many_killed_workers_lose_nothing(start, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    server = start("serve", store.mar("curve"), *CURVE, "--workers", "2")
    killer = Killer(server)
    result = load_while(server, killer, lambda _: len(killer.killed) >= 20)
    retried = server.metric("jitney_requests_retried_total", "curve")
    with capsys.disabled():
        print(f"\n  {len(killer.killed)} workers killed; {result}; the metrics page counts {retried:.0f} retries")
    all_well(result)
