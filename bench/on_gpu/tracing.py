"""What the worker's threads do during a load, by py-spy where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from server import Server

if TYPE_CHECKING:
    from on_gpu.session import Plan

SECONDS = 4


def traced(row: str, server: Server, plan: Plan, run: Callable[[], dict]) -> None:
    """Runs a load once more, and writes the stacks of the worker beside the results."""
    if not shutil.which("py-spy"):
        print(f"  {row}: no trace, py-spy is not installed", file=sys.stderr)
        return
    path = plan.work / f"{row}.speedscope.json"
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
