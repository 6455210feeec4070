"""The applications of chain.py: three parts of 2 ms and 0.1 ms per item each, awaited by a driver or by each other."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import jitney

BATCH = 32
HELD = 6
"""Batches that a part of the nested chain holds: one on its device, the others with the parts behind it."""
BURST_MS = 1
"""The items of a batch call the next part together, and there they are to run together."""


def seconds(items: int) -> float:
    """How long a device takes for a batch."""
    return 0.002 + 0.0001 * items


@jitney.model(queue=512)
class First:
    """A part that blocks its worker while it works."""

    @jitney.batch(max_batch_size=BATCH)
    def run(self, number: list[int]) -> list[int]:
        """Adds one."""
        time.sleep(seconds(len(number)))
        return [one + 1 for one in number]


@jitney.model(queue=512)
class Second(First):
    """The same."""


@jitney.model(queue=512)
class Third(First):
    """The same."""


@jitney.model(queue=512)
class Driver:
    """Awaits three parts one after another."""

    first = jitney.depends(First)
    second = jitney.depends(Second)
    third = jitney.depends(Third)

    @jitney.endpoint(concurrency=255)
    async def run(self, number: int) -> int:
        """Adds three."""
        return await self.third.remote(await self.second.remote(await self.first.remote(number)))


Wired = jitney.chain(First, Second, Third)
"""The same without a driver."""


class Device:
    """Something that one batch at a time can use, and that goes on with the next one by itself."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    async def work(self, numbers: list[int]) -> list[int]:
        """Adds one."""
        await asyncio.get_running_loop().run_in_executor(self._thread, time.sleep, seconds(len(numbers)))
        return [one + 1 for one in numbers]


@jitney.model(queue=512)
class Last:
    """The end of the nested chain."""

    def setup(self) -> None:
        self.device = Device()

    @jitney.batch(max_batch_size=BATCH, concurrency=HELD, max_batch_delay_ms=BURST_MS)
    async def run(self, number: list[int]) -> list[int]:
        """Adds one."""
        return await self.device.work(number)


@jitney.model(queue=512)
class Middle(Last):
    """Uses its device, then awaits the next part for every item."""

    next = jitney.depends(Last)

    @jitney.batch(max_batch_size=BATCH, concurrency=HELD, max_batch_delay_ms=BURST_MS)
    async def run(self, number: list[int]) -> list[int]:
        """Adds what is left to add."""
        done = await self.device.work(number)
        return list(await asyncio.gather(*map(self.next.remote, done)))


@jitney.model(queue=512)
class Outer(Middle):
    """The beginning of the nested chain."""

    next = jitney.depends(Middle)
