"""An event loop whose clock jumps to the next timer: tests of waiting times take none."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Never waits; tells the loop how far it would have."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.skipped += timeout
        if not ready and timeout is None:
            raise AssertionError("nothing is left to do, and somebody still waits")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.skipped


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def settle() -> None:
    """Lets everything run that can, without a step of the clock."""
    for _ in range(20):
        await asyncio.sleep(0)
