"""Jobs of `jitney infer`: run them, kill them, read what they wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from harness.wait import until

JOB_SECONDS = 120
"""How long a job may take on the slowest machine."""

MODELS = '''
"""Models of the offline tests."""

import os
import time

import jitney

HOLD = os.environ.get("HOLD")
answered = 0


def hold() -> None:
    """From its fourth batch on a worker waits for the file HOLD, so that the job cannot end before."""
    global answered
    answered += 1
    while HOLD and answered > 3 and not os.path.exists(HOLD):
        time.sleep(0.01)


@jitney.batch(max_batch_size=8)
def double(number: list[int]) -> list[object]:
    print(f"a batch of {len(number)}", flush=True)
    hold()
    return [jitney.Error("unlucky", 422) if one == 13 else 2 * one for one in number]


@jitney.batch(max_batch_size=4)
def look(image: list[bytes]) -> list[object]:
    hold()
    return [{"size": len(one), "head": one[:4].hex()} for one in image]


@jitney.batch(max_batch_size=4, max_latency_ms=1)
def slow(number: list[int]) -> list[int]:
    time.sleep(0.05)  # Longer than its objective: that is what it is for.
    return number


def tell(name: str, words: int = 2):
    for word in range(words):
        yield f"{name} {word};"
'''


class Desk:
    """A directory with models, and the jobs that are run in it."""

    def __init__(self, binary: Path, path: Path) -> None:
        self.binary = binary
        self.path = path
        (path / "models.py").write_text(MODELS)

    def run(self, *arguments: str | Path, code: int = 0, input: str | None = None, **env: str) -> str:
        """Runs a job to its end; returns what it said (with input given: what it wrote)."""
        command = [str(self.binary), "infer", *map(str, arguments)]
        ran = subprocess.run(
            command,
            cwd=self.path,
            env={**os.environ, **env},
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS,
        )
        assert ran.returncode == code, ran.stderr
        return ran.stderr if input is None else ran.stdout

    @property
    def gate(self) -> Path:
        """The file that a held job waits for."""
        return self.path / "go-on"

    def begin(self, *arguments: str | Path, **env: str) -> subprocess.Popen[bytes]:
        """Starts a job whose workers answer three batches and wait then, until there is the gate's file."""
        command = [str(self.binary), "infer", *map(str, arguments)]
        env = {**os.environ, "HOLD": str(self.gate), **env}
        return subprocess.Popen(command, cwd=self.path, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill_at(self, rows: int, output: str, *arguments: str | Path, **env: str) -> int:
        """Starts a job and kills it when its journal has counted so many rows; returns what it counted last."""
        job = self.begin(*arguments, "-o", output, **env)
        try:
            until(lambda: job.poll() is not None or self.journal(output) >= rows, "the job is under way", JOB_SECONDS)
            assert job.poll() is None, "the job was over before it could be killed"
        finally:
            job.send_signal(signal.SIGKILL)
            job.wait()
        return self.journal(output)

    def journal(self, output: str) -> int:
        """Rows that the journal counts."""
        try:
            return json.loads((self.path / f"{output}.progress").read_text())["progress"]["rows"]
        except FileNotFoundError:
            return 0

    def write(self, name: str, values: Any) -> str:
        """Writes lines of JSON."""
        (self.path / name).write_text("".join(f"{json.dumps(value)}\n" for value in values))
        return name

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Reads lines of JSON."""
        return [json.loads(line) for line in (self.path / name).read_text().splitlines()]

    def names(self) -> list[str]:
        """The files of the directory, but for the models."""
        return sorted(path.name for path in self.path.iterdir() if path.name not in ("models.py", "__pycache__"))
