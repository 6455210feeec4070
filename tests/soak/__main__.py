"""Runs the server for half an hour under load, over every protocol and with keys, while workers die, clients misbehave,
the disk fills and the clock jumps.

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
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import requests

from harness.archives import Store
from harness.load import BodyOf, Check, LoadResult, run_load
from harness.server import Server
from harness.wait import until
from test_grpc import FREE_PORTS
from test_named_keys import bearer, row, write

from . import gauge
from .clients import PROTOCOLS, run_client
from .faults import FAULTS, KEY, LIMITED_KEY, MODEL, ONNX_MODEL, Fault, World
from .sandbox import SmallDisk, WallClock

CONNECTIONS = 32
ONNX_CONNECTIONS = 2
LIMITED_RATE = 20
"""Items a second of the limited key."""
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


ROOT = Path(__file__).parent.parent.parent
LABELS = [("Cargo.toml", "toml"), ("LICENSE", "txt"), ("Makefile", "makefile"), ("tests/harness/load.py", "python")]
"""Files for the ONNX model, and what it says they are."""


@dataclass
class Judge:
    """Tells a request's own row from another's, and an explained end from an unexplained one."""

    salt: int
    rejected: Counter[str] = field(default_factory=Counter)
    files: list[bytes] = field(default_factory=lambda: [(ROOT / file).read_bytes() for file, _ in LABELS])

    def row(self, number: int) -> bytes:
        """A row for the Python model."""
        return b"row %d of %d" % (number, self.salt)

    def is_own_row(self, number: int, status: int, body: bytes) -> bool:
        """Whether it is answered as it should be."""
        own = self.row(number)
        return body == b"%08x %s" % (zlib.crc32(own), own) if status == 200 else self.is_explained(status, body)

    def file(self, number: int) -> bytes:
        """A file for the ONNX model."""
        return self.files[number % len(LABELS)]

    def is_own_label(self, number: int, status: int, body: bytes) -> bool:
        """Whether it is recognised."""
        if status != 200:
            return self.is_explained(status, body)
        label = LABELS[number % len(LABELS)][1]
        answer = json.loads(body)
        return max(answer, key=answer.__getitem__) == label

    def is_explained(self, status: int, body: bytes) -> bool:
        """Whether a request that was not answered is told why."""
        said = json.loads(body)
        # Two faults in a row met it: its worker was killed or stopped, and so was the next one.
        unlucky = status == 500 and "was restarted" in said.get("message", "")
        if unlucky or (status in EXPLAINED and said.get("message")):
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
    onnx = store.path / f"{ONNX_MODEL}.onnx"
    for file, name in (("model.onnx", onnx.name), ("model.yaml", f"{ONNX_MODEL}.yaml"), ("labels.txt", "labels.txt")):
        shutil.copy(ROOT / "models" / "magika" / file, store.path / name)
    keys = [row("all", KEY, "predict", "manage", "metrics"), row("limited", LIMITED_KEY, "predict", rate=LIMITED_RATE)]
    flags = ("--model-store", store.path, "--queue", "1000", "--keys", write(folder / "keys.yaml", *keys))
    binary = Path(os.environ["JITNEY_BIN"])
    server = Server(
        binary,
        folder / "server",
        ["serve", store.path / f"{MODEL}.mar", onnx, *flags],
        env={**FREE_PORTS, **(clock.environment if clock else {})},
        store=store,
        open_files_max=DESCRIPTORS,
    )
    server.headers = bearer(KEY)
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

    def load(model: str, connections: int, body_of: BodyOf, check: Check, key: str = KEY) -> asyncio.Task[LoadResult]:
        path, headers = f"/predictions/{model}", f"Authorization: Bearer {key}\r\n"
        running = run_load(
            *world.server.address, path, connections, body_of, check, enough=lambda _: over, headers=headers
        )
        return asyncio.create_task(running)

    loads = {
        MODEL: load(MODEL, CONNECTIONS, judge.row, judge.is_own_row),
        ONNX_MODEL: load(ONNX_MODEL, ONNX_CONNECTIONS, judge.file, judge.is_own_label),
        f"{MODEL}, limited key": load(MODEL, 1, judge.row, judge.is_own_row, LIMITED_KEY),
    }
    for name, protocol in PROTOCOLS.items():
        connect = partial(protocol, world.server, MODEL, KEY)
        client = asyncio.to_thread(run_client, connect, judge.row, judge.is_own_row, lambda: over)
        loads[f"{MODEL} over {name}"] = asyncio.create_task(client)
    await misbehave(world, each_once=True, until=time.monotonic() + WARM_SECONDS)
    early = await calm(world)
    print(f"after {WARM_SECONDS} s: {early}", flush=True)
    await misbehave(world, each_once=False, until=end)
    late = await calm(world)
    over = True
    results = {name: await load for name, load in loads.items()}
    await asyncio.to_thread(until, lambda: books(world.server)["open"] == 0, "every request has ended")
    return report(world, judge, results, early, late)


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
    page = server.metrics()
    counted: Counter[str] = Counter()
    for line in page.splitlines():
        if line.startswith("jitney_") and any(f'model_name="{model}"' in line for model in (MODEL, ONNX_MODEL)):
            name = line.partition("{")[0]
            counted[name] += int(float(line.rpartition(" ")[2]))
    ended = sum(counted[f"jitney_requests_{how}_total"] for how in ("answered", "rejected", "failed", "cancelled"))
    return {
        "requests": counted["jitney_requests_total"],
        "ended": ended,
        "open": counted["jitney_requests_total"] - ended,
    }


def report(
    world: World, judge: Judge, loads: dict[str, LoadResult], early: gauge.Holdings, late: gauge.Holdings
) -> int:
    """Prints the figures; 0 if all of them are as they should be."""
    ratio = late.resident / early.resident
    print(f"at the end: {late}\n")
    for name, load in loads.items():
        own = load.statuses[200] - load.wrong
        print(f"{name}: requests {load.sent}, answered with their own row {own}, lost {load.lost}, wrong {load.wrong}")
        print(f"  {load.rate:.0f} requests/s, retried {load.retried}")
    print(f"rejected or failed with a reason {sum(judge.rejected.values())}")
    for reason, count in judge.rejected.most_common():
        print(f"  {count:8} {reason}")
    for what, count in sorted(world.tally.items()):
        print(f"  {count:8} {what}")
    print(f"memory at the end over memory after the first minute: {ratio:.3f} (bar {MEMORY_RATIO_MAX})")
    print(f"the server's books: {books(world.server)}")
    failures = [*(example for load in loads.values() for example in load.examples), *world.complaints]
    failures += [f"{name}: no request was answered" for name, load in loads.items() if not load.statuses[200]]
    if bad := sum(load.lost + load.wrong for load in loads.values()):
        failures.append(f"{bad} requests lost or wrong")
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
