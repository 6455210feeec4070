"""Runs the server for half an hour under load while workers die, clients misbehave, the disk fills and the clock jumps.

Checks that every request ended exactly once, with its own row or with an explained rejection; that the server's
own books agree; and that memory, threads, descriptors and processes came back. Exits 1 if not.

    python -m soak --seconds 1800 --faketime PATH/libfaketimeMT.so.1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import requests

from harness.archives import Store
from harness.load import LoadResult, run_load
from harness.server import Server
from harness.wait import until

from . import gauge
from .faults import FAULTS, MODEL, Fault, World
from .sandbox import SmallDisk, WallClock

CONNECTIONS = 32
WARM_SECONDS = 60
CALM_SECONDS = 10
DESCRIPTORS = 512
MEMORY_RATIO_MAX = 1.05
EXPLAINED = (408, 429, 503, 507)
"""Statuses of rejections and of failures that are not the request's fault; each has a body that says why."""

MODEL_CONFIG = """
minWorkers: 2
maxWorkers: 2
responseTimeout: 5
batching: {max_batch_size: 16}
"""


@dataclass
class Judge:
    """Tells a request's own row from another's, and an explained end from an unexplained one."""

    salt: int
    rejected: Counter[str] = field(default_factory=Counter)

    def body_of(self, number: int) -> bytes:
        return b"row %d of %d" % (number, self.salt)

    def check(self, number: int, status: int, body: bytes) -> bool:
        own = self.body_of(number)
        if status == 200:
            return body == b"%08x %s" % (zlib.crc32(own), own)
        if status in EXPLAINED and (said := json.loads(body)).get("message"):
            self.rejected[f"{status} {said.get('reason') or said['message']}"[:100]] += 1
            return True
        return False


def main() -> int:
    """The run, from the start of the server to the verdict."""
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        world = start(Path(folder), options)
        try:
            return asyncio.run(soak(world, options.seconds))
        finally:
            world.server.end()
            world.disk.close()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=1800, help="how long it runs (default: 1800)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="repeats a run's choices")
    parser.add_argument("--faketime", type=Path, help="libfaketimeMT.so.1; without it the clock does not jump")
    return parser.parse_args()


def start(folder: Path, options: argparse.Namespace) -> World:
    """The server on its small disk, with the model and a guest to come and go."""
    store = Store(folder / "store")
    source = (Path(__file__).parent / "handler.py").read_text()
    store.mar(MODEL, source=source, config=MODEL_CONFIG)
    store.mar("guest", source=source)
    clock = WallClock(options.faketime.resolve(), folder / "clock") if options.faketime else None
    flags = ("--model-store", store.path, "--queue", "1000")
    binary = Path(os.environ["JITNEY_BIN"])
    server = Server(
        binary,
        folder / "server",
        ["serve", store.path / f"{MODEL}.mar", *flags],
        env=clock.environment if clock else None,
        store=store,
        open_files_max=DESCRIPTORS,
    )
    disk = SmallDisk(server.temp)
    server.under = [*disk.enter, *server.under]
    print(f"seed {options.seed}, {options.seconds} s, {'with' if clock else 'WITHOUT'} clock steps", flush=True)
    server.started()
    return World(server, disk, clock, random.Random(options.seed))


async def soak(world: World, seconds: int) -> int:
    """Load all the time; faults, a reading in calm, faults, a reading in calm."""
    end = time.monotonic() + seconds
    judge = Judge(world.dice.randrange(1 << 30))
    over = False
    path = f"/predictions/{MODEL}"
    load = asyncio.create_task(
        run_load(*world.server.address, path, CONNECTIONS, judge.body_of, judge.check, enough=lambda _: over)
    )
    await misbehave(world, each_once=True, until=time.monotonic() + WARM_SECONDS)
    early = await calm(world)
    print(f"after {WARM_SECONDS} s: {early}", flush=True)
    await misbehave(world, each_once=False, until=end)
    late = await calm(world)
    over = True
    result = await load
    await asyncio.to_thread(until, lambda: books(world.server)["open"] == 0, "every request has ended")
    return report(world, judge, result, early, late)


async def misbehave(world: World, *, each_once: bool, until: float) -> None:
    """One fault after the other, some side by side."""
    faults, weights = zip(*FAULTS, strict=True)
    if each_once:
        for fault in faults:
            await attempt(fault, world)
    while time.monotonic() < until:
        chosen = world.dice.choices(faults, weights, k=world.dice.randint(1, 3))
        await asyncio.gather(*(attempt(fault, world) for fault in chosen))
        await world.pause(0.1, 1)


async def attempt(fault: Fault, world: World) -> None:
    """A fault; that the server does not answer in its course is a complaint, not the end of the run."""
    try:
        await fault(world)
    except requests.RequestException as error:
        world.complaints.append(f"{fault.__name__}: {error}")


async def calm(world: World) -> gauge.Holdings:
    """A reading under load alone, with the workers that belong there."""
    await world.ask("PUT", f"/models/{MODEL}", min_worker=2, max_worker=2, synchronous="true")
    await asyncio.sleep(CALM_SECONDS)
    return await asyncio.to_thread(gauge.read, world.server)


def books(server: Server) -> dict[str, int]:
    """What the server itself counted about the model's requests."""
    page = requests.get(server.url("/metrics", "metrics"), timeout=60).text
    counted: Counter[str] = Counter()
    for line in page.splitlines():
        if line.startswith("jitney_") and f'model_name="{MODEL}"' in line:
            name = line.partition("{")[0]
            counted[name] += int(float(line.rpartition(" ")[2]))
    ended = sum(counted[f"jitney_requests_{how}_total"] for how in ("answered", "rejected", "failed", "cancelled"))
    return {
        "requests": counted["jitney_requests_total"],
        "ended": ended,
        "open": counted["jitney_requests_total"] - ended,
    }


def report(world: World, judge: Judge, load: LoadResult, early: gauge.Holdings, late: gauge.Holdings) -> int:
    """Prints the figures; 0 if all of them are as they should be."""
    ratio = late.resident / early.resident
    rejected = sum(judge.rejected.values())
    own = load.statuses[200] - load.wrong
    print(f"at the end: {late}\n")
    print(f"requests {load.sent}, answered with their own row {own}, rejected or failed with a reason {rejected}")
    print(f"lost {load.lost}, wrong {load.wrong}, {load.rate:.0f} requests/s, retried {load.retried}")
    for reason, count in judge.rejected.most_common():
        print(f"  {count:8} {reason}")
    for what, count in sorted(world.tally.items()):
        print(f"  {count:8} {what}")
    print(f"memory at the end over memory after the first minute: {ratio:.3f} (bar {MEMORY_RATIO_MAX})")
    print(f"the server's books: {books(world.server)}")
    failures = [*load.examples, *world.complaints]
    if load.lost or load.wrong:
        failures.append(f"{load.lost} requests lost, {load.wrong} wrong")
    if ratio > MEMORY_RATIO_MAX:
        failures.append(f"memory grew by {ratio - 1:.1%}")
    failures += [
        f"{name} grew from {getattr(early, name)} to {getattr(late, name)}"
        for name in ("threads", "descriptors", "processes")
        if getattr(late, name) > getattr(early, name)
    ]
    for failure in failures:
        print(f"FAILED: {failure}")
    print("soak passed" if not failures else f"soak failed ({len(failures)} complaints)")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
