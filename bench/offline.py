"""`jitney infer` over a million small rows with a no-op model: rate, peak memory, and a kill -9 in the middle.

    JITNEY_BIN=target/release/jitney .venv/test/bin/python bench/offline.py [ROWS]

Prints a line for the whole run, one for the run that is killed halfway and one for the run that goes on after it;
ends with an error unless every row is there once, in order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = '''
"""Does nothing, in batches."""

import jitney


@jitney.batch(max_batch_size=256)
def noop(number: list[int]) -> list[int]:
    return number
'''


def main() -> None:
    """Measures and checks."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "model.py").write_text(MODEL)
        with (home / "in.jsonl").open("w") as file:
            file.writelines(f'{{"number": {number}}}\n' for number in range(rows))
        report("whole", rows, *watch(begin(home, "whole.jsonl")))
        check(home / "whole.jsonl", rows)
        done = kill_in_the_middle(home, rows)
        report(f"after kill -9 at {done}", rows - done, *watch(begin(home, "out.jsonl")))
        check(home / "out.jsonl", rows)
        print(f"{rows} rows, each once and in order, in both outputs")


def begin(home: Path, output: str) -> subprocess.Popen[bytes]:
    """Starts the job."""
    binary = Path(os.environ["JITNEY_BIN"]).resolve()
    command = [binary, "infer", "model.py:noop", "in.jsonl", "-o", output, "--workers", "1"]
    return subprocess.Popen(command, cwd=home, stderr=subprocess.DEVNULL)


def watch(job: subprocess.Popen[bytes]) -> tuple[float, list[int]]:
    """Seconds until it ends, and its resident memory in KiB, a few times a second."""
    began, memory = time.monotonic(), []
    while job.poll() is None:
        memory.append(resident(job.pid))
        time.sleep(0.1)
    assert job.returncode == 0, job.returncode
    return time.monotonic() - began, memory


def resident(pid: int) -> int:
    """Resident memory in KiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


def report(what: str, rows: int, seconds: float, memory: list[int]) -> None:
    """One line. Memory is flat when the second half of the run needs no more than the first."""
    half = len(memory) // 2
    first, second = max(memory[:half], default=0) / 1024, max(memory[half:], default=0) / 1024
    rate = rows / seconds
    print(
        f"{what}: {seconds:.1f} s, {rate:.0f} rows/s, peak {first:.0f} MiB in the first half, {second:.0f} in the second"
    )


def kill_in_the_middle(home: Path, rows: int) -> int:
    """Kills a job when half of its rows are counted; returns how many were."""
    job, journal = begin(home, "out.jsonl"), home / "out.jsonl.progress"
    while counted(journal) < rows // 2:
        assert job.poll() is None, "the job was over before it could be killed"
        time.sleep(0.05)
    job.kill()
    job.wait()
    return counted(journal)


def counted(journal: Path) -> int:
    """Rows that the journal counts."""
    return json.loads(journal.read_text())["progress"]["rows"] if journal.exists() else 0


def check(output: Path, rows: int) -> None:
    """Every row once and in order."""
    with output.open() as lines:
        for number, line in enumerate(lines):
            assert json.loads(line) == {"row": number, "output": number}, line
        assert number == rows - 1, number


if __name__ == "__main__":
    main()
