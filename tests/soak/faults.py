"""What goes wrong during a soak. Each fault leaves the world as it found it; `Tally` counts what was done."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from harness.server import Server

from .sandbox import SmallDisk, WallClock

MODEL = "soak"
KEY = secrets.token_urlsafe(24)
"""Opens everything."""
LIMITED_KEY = secrets.token_urlsafe(24)
"""Has few items a second, and most of its requests are rejected."""
ONNX_MODEL = "magika"
BODY_BYTES = 1 << 20
LARGE_ANSWER = 4 << 20
LOG_LINES = 2500
IDLE_CLIENTS = 600
"""More than the server's descriptors."""


@dataclass
class World:
    """What faults are made with."""

    server: Server
    disk: SmallDisk
    clock: WallClock | None
    dice: random.Random
    tally: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    """What the server did not stand."""

    async def ask(self, method: str, path: str, **query: object) -> int:
        """A call of the management API; the status."""
        reply = await asyncio.to_thread(self.server.manage, method, path, **query)
        return reply.status_code

    async def victim(self) -> int | None:
        """A worker, mostly of the Python model."""
        model = self.dice.choice((MODEL, MODEL, MODEL, ONNX_MODEL))
        workers = await asyncio.to_thread(self.server.workers, model)
        pids = [pid for pid in workers.values() if pid]
        return self.dice.choice(pids) if pids else None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the inference API."""
        return await asyncio.open_connection(*self.server.address)

    async def pause(self, least: float, most: float) -> None:
        """Some seconds."""
        await asyncio.sleep(self.dice.uniform(least, most))


async def kill_worker(world: World) -> None:
    """kill -9."""
    if pid := await world.victim():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            world.tally["workers killed"] += 1


async def stop_worker(world: World) -> None:
    """SIGSTOP: for a while, or until the server has had enough of it."""
    if pid := await world.victim():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            world.tally["workers stopped"] += 1
            await world.pause(0.5, 8)
            os.kill(pid, signal.SIGCONT)


async def crash_input(world: World) -> None:
    """A request on which the handler ends its process, sent again when it failed."""
    body = b"die %d" % world.dice.randrange(1 << 30)
    for _ in range(world.dice.randint(1, 4)):
        reply = await asyncio.to_thread(world.server.predict, MODEL, body)
        world.tally["requests that end their worker"] += 1
        if reply.status_code < 400:
            world.complaints.append(f"a request that ends its worker was answered with {reply.status_code}")


async def raising_input(world: World) -> None:
    """A request on which the handler raises."""
    reply = await asyncio.to_thread(world.server.predict, MODEL, b"raise soak")
    world.tally["requests that raise"] += 1
    if reply.status_code < 400:
        world.complaints.append(f"a request that raises was answered with {reply.status_code}")


async def many_lines(world: World) -> None:
    """A request on which the handler prints more lines than the server keeps. The first one fills what it keeps, before
    its memory is read."""
    await asyncio.to_thread(world.server.predict, MODEL, b"print %d" % LOG_LINES)
    world.tally["lines printed"] += LOG_LINES


async def half_sent_bodies(world: World) -> None:
    """Clients that send most of a body, then a byte now and then, then leave."""

    async def client() -> None:
        with contextlib.suppress(OSError):
            _, writer = await world.connect()
            writer.write(head(BODY_BYTES) + b"x" * (BODY_BYTES - 1000))
            for _ in range(world.dice.randint(1, 5)):
                await world.pause(0.2, 1)
                writer.write(b"x")
            leave(writer)
        world.tally["bodies half sent"] += 1

    await asyncio.gather(*(client() for _ in range(30)))


async def unread_answers(world: World) -> None:
    """Clients that ask for a large answer and do not read it."""

    async def client() -> None:
        with contextlib.suppress(OSError):
            _, writer = await world.connect()
            writer.transport.pause_reading()
            ask = b"large %d" % LARGE_ANSWER
            writer.write(head(len(ask)) + ask)
            await world.pause(1, 5)
            leave(writer)
        world.tally["answers not read"] += 1

    await asyncio.gather(*(client() for _ in range(8)))


async def lost_clients(world: World) -> None:
    """Clients that leave as soon as they have asked."""
    for number in range(50):
        with contextlib.suppress(OSError):
            _, writer = await world.connect()
            ask = b"nobody waits %d" % number
            writer.write(head(len(ask)) + ask)
            await asyncio.sleep(0)
            leave(writer)
        world.tally["clients that left"] += 1


async def idle_clients(world: World) -> None:
    """More idle connections than the server has descriptors; management must answer meanwhile."""
    writers = []
    for _ in range(IDLE_CLIENTS):
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            _, writer = await asyncio.wait_for(world.connect(), 1)
            writer.write(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
            writers.append(writer)
    world.tally["idle connections"] += len(writers)
    try:
        status = await asyncio.wait_for(world.ask("GET", "/models"), 30)
        if status != 200:
            world.complaints.append(f"management answered {status} while descriptors were scarce")
    except Exception as error:
        world.complaints.append(f"management did not answer while descriptors were scarce: {error!r}")
    await kill_worker(world)
    await world.pause(1, 3)
    for writer in writers:
        leave(writer)


async def full_disk(world: World) -> None:
    """No space for a few seconds, during which a model is registered."""
    with world.disk.full():
        world.tally["times the disk was full"] += 1
        await world.ask("POST", "/models", url="guest.mar", initial_workers=1, synchronous="true")
        await world.pause(0.5, 2)
    await world.ask("DELETE", "/models/guest")


async def model_churn(world: World) -> None:
    """A model comes, is asked while it is unregistered, and goes; the main one is scaled."""
    registered = await world.ask("POST", "/models", url="guest.mar", initial_workers=1, synchronous="true")
    if registered == 200:
        asks = [asyncio.to_thread(world.server.predict, "guest", b"guest %d" % n) for n in range(20)]
        leaving = world.ask("DELETE", "/models/guest")
        await asyncio.gather(*asks, leaving)
        world.tally["models registered"] += 1
    workers = world.dice.randint(1, 3)
    await world.ask("PUT", f"/models/{MODEL}", min_worker=workers, max_worker=workers, synchronous="true")
    world.tally["models scaled"] += 1


async def clock_steps(world: World) -> None:
    """The wall clock jumps and comes back."""
    if world.clock:
        for step in (3600, -86400, 0):
            world.clock.step(step)
            world.tally["clock steps"] += 1
            await world.pause(1, 2)


Fault = Callable[[World], Awaitable[None]]

FAULTS: list[tuple[Fault, int]] = [
    (kill_worker, 10),
    (stop_worker, 4),
    (crash_input, 4),
    (raising_input, 4),
    (many_lines, 1),
    (half_sent_bodies, 3),
    (unread_answers, 3),
    (lost_clients, 3),
    (idle_clients, 1),
    (full_disk, 1),
    (model_churn, 2),
    (clock_steps, 1),
]
"""Every fault, and how often it is chosen."""


def head(length: int) -> bytes:
    """The head of a prediction."""
    fields = f"Host: localhost\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {length}"
    return f"POST /predictions/{MODEL} HTTP/1.1\r\n{fields}\r\n\r\n".encode()


def leave(writer: asyncio.StreamWriter) -> None:
    """Closes without a farewell, whatever is still unsent."""
    writer.transport.abort()
