"""Counts the source files that one prediction or one registration goes through, by running the real program.

The debug build runs under callgrind, warm and with a handler that returns what it got. The counters are set to zero,
one request is sent, the counters are read, several times: each file of crates/*/src with a line that ran every time is
one file of the walk. In the worker the interpreter itself reports which lines of our packages ran. What the server does
by the clock is counted over as much time without a request, and left out.

Files that hold only types, constants or code that was not needed do not show, and neither does code that runs when the
program starts. The count is therefore lower than a list of all that a reader would open; it is the same rule for every
commit. Needs valgrind and the tests' Python packages.

    JITNEY_BIN=target/debug/jitney python tools/walk.py [--list] [window] [adaptive] [register]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from callgrind import hide_auxiliary_vector
from rust_source import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from harness.archives import Store
from harness.server import Server
from harness.wait import until

SECONDS = 600.0
ROUNDS = 3
IDLE_SECONDS = 5.0
"""All that is done by the clock is done in this time."""
REPEATED = 1.5
"""What cost this much more than without the request belongs to the request too."""
BODY = {"inputs": [1.5, 2.5, 3.5, 4.5], "name": "sensor-17"}

ECHO = "def handle(data, context):\n    return [row.get('body') or row.get('data') for row in data or []]\n"
POLICIES = {
    "window": "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 4\nmaxBatchDelay: 20\n",
    "adaptive": "minWorkers: 1\nmaxWorkers: 1\nbatching:\n  policy: adaptive\n  max_batch_size: 4\n",
}

FILE = re.compile(r"^(c?)f[lie]=\((\d+)\)(?: (.*))?$")
OURS = re.compile(r"crates/(?!core_arch)\w+/src/(?!(?:lib|main)\.rs).*\.rs$")
"""The root of a crate names modules only; callgrind books to it what has no line, such as the end of a value."""
COST = re.compile(r"^[+\-*\d]\S* (\d+)$")

REPORT = """
import sys, threading, time
_out = open(OUT + str(__import__("os").getpid()), "a", buffering=1)
_last = [None]

def _imported(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_back and "importlib" in frame.f_back.f_code.co_filename:
            return True
        frame = frame.f_back
    return False

def _line(frame, event, argument):
    name = frame.f_code.co_filename
    if _last[0] != name and frame.f_code.co_flags & 1 and not _imported(frame):
        _out.write(f"{time.time()} {name}\\n")
        _last[0] = name
    return _line

def _call(frame, event, argument):
    name = frame.f_code.co_filename
    return _line if "/jitney/" in name or "/ts/" in name else None

threading.settrace(_call)
sys.settrace(_call)
"""
"""What the worker's interpreter runs first: a line for each change from file to file. Imports are no part of a walk."""


Costs = Counter[tuple[str, str]]
"""Instructions by source file and function."""


class Watched:
    """A server whose files can be counted between two moments."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.dumps = 0

    def walk(self, act: Callable[[int], None]) -> list[str]:
        """The files of an action, without what runs by the clock."""
        rounds = [self.count(lambda number=number: act(number)) for number in range(ROUNDS)]
        seconds = max(length for _, _, length in rounds)
        idle = [self.count(lambda: time.sleep(seconds)) for _ in range(ROUNDS)]
        long_idle, _, _ = self.count(lambda: time.sleep(IDLE_SECONDS))
        rust = own_files([costs for costs, _, _ in rounds], [costs for costs, _, _ in idle], long_idle)
        return sorted(rust | set.intersection(*(python for _, python, _ in rounds)))

    def count(self, act: Callable[[], None]) -> tuple[Costs, set[str], float]:
        """What Rust cost during an action, which Python files ran, and how long it took."""
        self.control("zero")
        started = time.time()
        act()
        ended = time.time()
        self.control("dump")
        self.dumps += 1
        [dump] = [path for path in self.folder.glob("callgrind.*") if path.name.endswith(f".{self.dumps}")]
        return rust_costs(dump.read_text()), self.python(started, ended), ended - started

    def control(self, what: str) -> None:
        """Tells callgrind something."""
        command = ["vgdb", f"--vgdb-prefix={self.folder}/vgdb", f"--pid={self.server.pid}", what]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)

    def python(self, started: float, ended: float) -> set[str]:
        """The files of our packages that ran in a worker between two moments."""
        lines = [line.split(" ", 1) for path in self.folder.glob("python.*") for line in path.read_text().splitlines()]
        return {own_python(name) for at, name in lines if started <= float(at) <= ended}


def own_files(rounds: list[Costs], idle: list[Costs], long_idle: Costs) -> set[str]:
    """The files with a function that ran in each round and never without a request, or that cost more in each."""
    by_clock = set(long_idle).union(*idle)
    alone = {file for file, _ in set.intersection(*map(set, rounds)) - by_clock}
    least, most = Counter(by_file(rounds[0])), Counter[str]()
    for costs in rounds:
        least &= by_file(costs)
    for costs in idle:
        most |= by_file(costs)
    return alone | {file for file, cost in least.items() if cost > REPEATED * most[file]}


def by_file(costs: Costs) -> Counter[str]:
    """The sum over the functions of each file."""
    summed: Counter[str] = Counter()
    for (file, _), cost in costs.items():
        summed[file] += cost
    return summed


def rust_costs(dump: str) -> Costs:
    """The instructions that a callgrind file counts for our sources."""
    names: dict[str, str] = {}
    costs: Costs = Counter()
    here, function, called = "", "", False
    for line in dump.splitlines():
        if found := FILE.match(line):
            names.setdefault(found[2], found[3] or "")
            here = here if found[1] else names[found[2]]
        elif line.startswith("fn="):
            function = line.split()[0]
        elif line.startswith("calls="):
            called = True  # The next line is what the called one cost.
        elif found := COST.match(line):
            if not called and (ours := OURS.search(here)):
                costs[ours[0], function] += int(found[1])
            called = False
    return costs


def own_python(path: str) -> str:
    """The name of a file as it lies in the project."""
    return "python/" + re.sub(r".*/(?=(?:jitney|ts)/)", "", path)


@contextmanager
def watched(config: str | None) -> Iterator[Watched]:
    """A server under callgrind with one model, and another archive in its store."""
    with tempfile.TemporaryDirectory(prefix="walk-") as name:
        folder = Path(name)
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(f"OUT = {str(folder / 'python.')!r}\n{REPORT}")
        store = Store(folder / "store")
        for model in ("walk", *(f"other{number}" for number in range(ROUNDS + 1))):
            store.mar(model, source=ECHO, config=config)
        under = (
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={folder}/callgrind.%p",
            f"--vgdb-prefix={folder}/vgdb",
        )
        arguments = ["serve", store.path / "walk.mar", "--model-store", store.path]
        server = Server(
            Path(os.environ["JITNEY_BIN"]).resolve(),
            folder / "home",
            arguments,
            env={"PYTHONPATH": str(folder / "site")},
            under=under,
            wait_for_workers=False,
            start_seconds=SECONDS,
        )
        server.started()
        try:
            until(lambda: server.predict("walk", BODY).status_code == 200, "the model answers", SECONDS, 0.5)
            yield Watched(server, folder)
        finally:
            server.end()


def prediction(policy: str) -> list[str]:
    """The files of one prediction, its connection included."""
    with watched(POLICIES[policy]) as server:
        return server.walk(lambda _: expect(server.server.predict("walk", BODY).status_code, 200))


def registration() -> list[str]:
    """The files of one registration of an archive of the store, until its worker is loaded."""

    def register(number: int) -> None:
        query = {"url": f"other{number}.mar", "initial_workers": 1, "synchronous": "true"}
        expect(server.server.manage("POST", "/models", **query).status_code, 200)

    with watched(None) as server:
        register(ROUNDS)
        return server.walk(register)


def expect(status: int, wanted: int) -> None:
    """Fails where an answer is not what the walk needs."""
    if status != wanted:
        raise SystemExit(f"the server answered {status} instead of {wanted}")


WALKS: dict[str, Callable[[], list[str]]] = {
    "window": lambda: prediction("window"),
    "adaptive": lambda: prediction("adaptive"),
    "register": registration,
}


def main() -> int:
    """Prints how many files each walk has; with --list also which."""
    parser = argparse.ArgumentParser(description="Count the files of a prediction and of a registration.")
    parser.add_argument("--list", action="store_true", help="print the files too")
    parser.add_argument("names", nargs="*", help=f"which walks: {', '.join(WALKS)} (default: all)")
    options = parser.parse_args()
    hide_auxiliary_vector()
    for name in options.names or WALKS:
        files = WALKS[name]()
        python = sum(file.startswith("python/") for file in files)
        print(f"{name}: {len(files)} files, {len(files) - python} of Rust and {python} of Python", flush=True)
        for file in files if options.list else ():
            print(f"  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
