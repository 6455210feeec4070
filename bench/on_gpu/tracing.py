"""What the worker's threads do during a load, by py-spy where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from server import Server

SECONDS = 4


def traced(row: str, server: Server, folder: Path, run: Callable[[], dict]) -> None:
    """Runs a load once more, and writes the stacks of the worker beside the results."""
    if not shutil.which("py-spy"):
        print(f"  {row}: no trace, py-spy is not installed", file=sys.stderr)
        return
    path = folder / f"{row}.speedscope.json"
    record = [
        "py-spy",
        "record",
        "--pid",
        str(server.ask("/models/bench")[0]["workers"][0]["pid"]),
        "--duration",
        str(SECONDS),
        "--threads",
    ]
    sampler = subprocess.Popen([*record, "--format", "speedscope", "--output", str(path)])
    run()
    sampler.wait()
    print(f"  {row}: stacks in {path}", file=sys.stderr)
