"""No server at all: the loop that W3 is held against."""

from __future__ import annotations

import json
import pathlib
import subprocess

from ..workloads import W3, Load, Workload
from .base import APPS, Server, Site, common_variables

GUESSED_RATE = 20
"""Pictures per second on a slow core, to turn seconds into a count."""


class BareLoop(Server):
    """Decodes and classifies in one Python process, in batches of eight."""

    name = "bare"
    title = "bare Python loop, no server"

    def __init__(self) -> None:
        self.environment = "jitney"

    def loads(self, workload: Workload) -> tuple[Load, ...]:
        return workload.loads if workload is W3 else ()

    def settings(self, workload: Workload) -> str:
        return "batches of eight, one after another"

    def version(self, python: pathlib.Path) -> str:
        code = "import sys; print('Python', sys.version.split()[0])"
        return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    def alone(self, site: Site, seconds: float) -> dict[str, float]:
        (site.folder / "photo").write_bytes(site.photo)
        count = str(int(seconds * GUESSED_RATE))
        command = [str(site.python), str(APPS / "work.py"), "bare", str(site.folder / "photo"), count]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=common_variables(site))
        return {**json.loads(done.stdout), "not_ok": 0.0, "lost": 0.0}
