"""Calls per CPU-second of a handle: one asyncio client, a no-op batched function, Jitney or Ray Serve.

    python bench/handles.py jitney --program target/release/jitney
    python bench/handles.py ray            # in an environment with ray[serve]

CPU is that of the client, the server and the worker together. Of Ray only the driver and the replica
count in the first figure, which is the one most favourable to it; the second has all its processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))

BATCH = 100
TICKS = os.sysconf("SC_CLK_TCK")
Call = Callable[[int], Awaitable[int]]


def processes() -> dict[int, tuple[int, float, str]]:
    """Parent, CPU seconds and command line of every process."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            found[int(entry)] = int(stat[1]), (int(stat[11]) + int(stat[12])) / TICKS, command
    return found


def cpu(counts: Callable[[str], bool] = lambda command: True) -> float:
    """CPU seconds so far of this process and those of its descendants that count."""
    table = processes()
    family, total = {os.getpid()}, table[os.getpid()][1]
    grown = True
    while grown:
        grown = False
        for pid, (parent, seconds, command) in table.items():
            if parent in family and pid not in family:
                family.add(pid)
                total += seconds if counts(command) else 0.0
                grown = True
    return total


async def rounds(call: Call, count: int, window: int) -> None:
    """So many calls, a window of them at a time."""
    for start in range(0, count, window):
        numbers = range(start, min(start + window, count))
        answers = await asyncio.gather(*(call(number) for number in numbers))
        assert answers == list(numbers)


async def measure(name: str, call: Call, flags: argparse.Namespace, core: Callable[[str], bool]) -> None:
    """Warms up, measures, prints one line of JSON."""
    await rounds(call, max(flags.window * 4, flags.calls // 10), flags.window)
    wall, all_before, core_before = time.perf_counter(), cpu(), cpu(core)
    await rounds(call, flags.calls, flags.window)
    wall, everything, few = time.perf_counter() - wall, cpu() - all_before, cpu(core) - core_before
    result = {
        "name": name,
        "calls": flags.calls,
        "window": flags.window,
        "calls_per_cpu_second": round(flags.calls / few),
        "calls_per_cpu_second_all_processes": round(flags.calls / everything),
        "calls_per_second": round(flags.calls / wall),
    }
    print(json.dumps(result))


def run_jitney(flags: argparse.Namespace) -> None:
    """A handle of `jitney.run`."""
    import handles_noop
    import jitney

    with jitney.run(handles_noop.noop, program=flags.program) as handle:
        asyncio.run(measure("jitney", handle.remote, flags, lambda command: True))


def run_ray(flags: argparse.Namespace) -> None:
    """A DeploymentHandle of Ray Serve, its dashboard off."""
    import ray
    from ray import serve

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    @serve.deployment(max_ongoing_requests=flags.window)
    class Noop:
        @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0)
        async def batched(self, numbers: list[int]) -> list[int]:
            return numbers

        async def __call__(self, number: int) -> int:
            return await self.batched(number)

    handle = serve.run(Noop.bind(), route_prefix=None)

    async def call(number: int) -> int:
        return await handle.remote(number)

    async def main() -> None:
        await measure(f"ray {ray.__version__}", call, flags, lambda command: "ServeReplica" in command)

    asyncio.run(main())
    serve.shutdown()
    ray.shutdown()


def main() -> None:
    """Measures one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("jitney", "ray"))
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--program", help="the jitney program, if it is not beside Python or on the path")
    flags = parser.parse_args()
    {"jitney": run_jitney, "ray": run_ray}[flags.what](flags)


if __name__ == "__main__":
    main()
