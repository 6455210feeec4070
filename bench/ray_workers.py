"""Workers on the nodes of a Ray cluster: against the same workers as local processes, and while nodes are killed.

    sudo .venv/ray/bin/python bench/ray_workers.py --program target/release/jitney

The model sleeps 5 ms and 0.2 ms per item, in batches of at most 32 (W2). Four hosts with addresses of their own
(network namespaces) have a node each, with one worker.

(a) Requests per second of `jitney bench` over four workers on four nodes, divided by the same over four local processes,
    in turns, medians of the rounds. Wanted: at least 0.9.
(b) A node is killed every ten seconds for two minutes, and a new one takes its place, under load; one node is to spare.
    Every request must be answered once and with the right answer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness.answers import checking_clients  # noqa: E402
from harness.ray_hosts import RayHosts, missing, ray_hosts  # noqa: E402
from harness.server import Server  # noqa: E402
from harness.wait import until  # noqa: E402

WORKERS = 4
RATIO_MIN = 0.9
APP = """
import time

import jitney


@jitney.batch(max_batch_size=32, workers=4)
def sleepy(number: list[int]) -> list[int]:
    time.sleep(0.005 + 0.0002 * len(number))
    return [2 * one for one in number]
"""


def main() -> int:
    """Measures, prints and judges."""
    flags = parser().parse_args()
    why_not = missing()
    if why_not is not None:
        print(f"skipped: {why_not}")
        return 0
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as directory, ray_hosts(WORKERS) as hosts:
        app = Path(directory) / "app"
        app.mkdir()
        (app / "app.py").write_text(APP)
        if "a" in flags.parts:
            found["throughput"] = throughput(flags, hosts, app, Path(directory))
        if "b" in flags.parts:
            found["kills"] = kills(flags, hosts, app, Path(directory))
    print(json.dumps(found, indent=2))
    if flags.json:
        Path(flags.json).write_text(json.dumps(found, indent=2) + "\n")
    return 0 if all(one["passed"] for one in found.values()) else 1  # type: ignore[index]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    one = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    one.add_argument("--program", type=Path, required=True, help="the jitney program, a release build")
    one.add_argument("--parts", default="ab", help="a, b, or both")
    one.add_argument("--rounds", type=int, default=3)
    one.add_argument("--seconds", type=int, default=10, help="of one measurement")
    one.add_argument("--connections", type=int, default=256)
    one.add_argument("--kill-every", type=float, default=10.0)
    one.add_argument("--kill-for", type=float, default=120.0)
    one.add_argument("--clients", type=int, default=16, help="that check every answer, while nodes are killed")
    one.add_argument("--json", help="write the results into this file")
    return one


def server(flags: argparse.Namespace, app: Path, home: Path, *words: str) -> Server:
    """A server with four workers that are loaded."""
    arguments = ["serve", "app.py:sleepy", "--python", sys.executable, "--queue", "4096", *words]
    one = Server(flags.program.resolve(), home, arguments, cwd=app, env={"RAY_AUTH_MODE": "disabled"})
    one.started()
    until(lambda: len(one.ready("sleepy")) == WORKERS, "four workers")
    return one


def throughput(flags: argparse.Namespace, hosts: RayHosts, app: Path, home: Path) -> dict[str, object]:
    """Requests per second of both, in turns: noise of the machine meets both."""
    places = {"local": (), "ray": ("--ray", hosts.address)}
    rates: dict[str, list[float]] = {place: [] for place in places}
    running = {place: server(flags, app, home / place, *words) for place, words in places.items()}
    try:
        for _ in range(flags.rounds):
            for place, one in running.items():
                rates[place].append(rate(flags, one))
                print(f"{place:6} {rates[place][-1]:8.1f} requests/s", flush=True)
    finally:
        for one in running.values():
            one.end()
    medians = {place: statistics.median(all_) for place, all_ in rates.items()}
    ratio = medians["ray"] / medians["local"]
    return {"requests_per_second": rates, "medians": medians, "ratio": ratio, "passed": ratio >= RATIO_MIN}


def rate(flags: argparse.Namespace, one: Server) -> float:
    """Requests per second of one run."""
    url = one.url("/predictions/sleepy")
    words = ["-c", str(flags.connections), "-d", f"{flags.seconds}s", "--warm-up", "2s", "--json", "-", "--body"]
    done = subprocess.run(
        [flags.program, "bench", url, *words, '{"number": 1}'], capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout[done.stdout.index("{") :])["total"]
    assert said["lost"] == said["rejected"] == said["expired"] == 0, said
    return float(said["good_per_s"])


def kills(flags: argparse.Namespace, hosts: RayHosts, app: Path, home: Path) -> dict[str, object]:
    """Nodes are killed in turn and replaced, while clients check every answer."""
    one = server(flags, app, home / "kills", "--ray", hosts.address)
    killed, fewest = 0, WORKERS
    hosts.add()  # One to spare, so that a lost worker has a place at once.
    hosts.wait_for(WORKERS + 1)
    try:
        with checking_clients(one.address, "/predictions/sleepy", flags.clients) as tally:
            began = time.monotonic()
            while (at := (killed + 1) * flags.kill_every) <= flags.kill_for:
                until(lambda due=began + at: time.monotonic() >= due, "the next kill", 2 * flags.kill_every, 0.05)
                fewest = min(fewest, len(one.ready("sleepy")))
                victim = hosts.hosts.pop(0)
                victim.remove()
                hosts.add()
                killed += 1
                print(f"{killed} killed, {tally.right} answered, {len(one.ready('sleepy'))} ready", flush=True)
            until(lambda: len(one.ready("sleepy")) == WORKERS, "four workers again", poll=0.2)
        lost, wrong = tally.lost, tally.wrong
    finally:
        one.end()
    return {
        "killed": killed,
        "answered": tally.right,
        "lost": lost[:20],
        "wrong": wrong[:20],
        "fewest_workers_before_a_kill": fewest,
        "passed": not lost and not wrong and tally.right > 0,
    }


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
