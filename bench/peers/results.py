"""The file of figures, from which the page is made."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Figure:
    """What one server did under one load in one round."""

    run: int
    round: int
    server: str
    workload: str
    load: str
    seconds: float
    values: dict[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass
class Results:
    """All runs that were made on one machine."""

    machine: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)

    @classmethod
    def read(cls, path: pathlib.Path) -> Results:
        """From a file."""
        told = json.loads(path.read_text())
        told["figures"] = [Figure(**one) for one in told["figures"]]
        return cls(**told)

    def write(self, path: pathlib.Path) -> None:
        """To a file, one figure per row."""
        told = asdict(self)
        rows = ",\n".join("    " + json.dumps(one, sort_keys=True) for one in told.pop("figures"))
        head = json.dumps(told, indent=2, sort_keys=True)
        path.write_text(head[:-2] + ',\n  "figures": [\n' + rows + "\n  ]\n}\n")

    def of(self, server: str, workload: str, load: str) -> list[Figure]:
        """The figures of one server under one load that are not errors."""
        return [
            one
            for one in self.figures
            if (one.server, one.workload, one.load) == (server, workload, load) and not one.error
        ]

    def values(self, server: str, workload: str, load: str, name: str) -> dict[tuple[int, int], float]:
        """One value by run and round."""
        return {(one.run, one.round): one.values[name] for one in self.of(server, workload, load) if name in one.values}

    def median(self, server: str, workload: str, load: str, name: str) -> float | None:
        """Its median."""
        values = self.values(server, workload, load, name)
        return statistics.median(values.values()) if values else None

    def ratios(self, server: str, base: str, workload: str, load: str, name: str) -> list[float]:
        """One server's value over another's, round by round, where both were measured."""
        ours = self.values(base, workload, load, name)
        theirs = self.values(server, workload, load, name)
        return [theirs[key] / ours[key] for key in sorted(theirs) if ours.get(key)]

    def errors(self, server: str, workload: str) -> list[str]:
        """What went wrong."""
        return [one.error for one in self.figures if one.error and (one.server, one.workload) == (server, workload)]

    def names(self, choose: Callable[[Figure], str]) -> list[str]:
        """Different names among the figures, in the order in which they came."""
        return list(dict.fromkeys(choose(one) for one in self.figures))


def machine() -> dict[str, str]:
    """What the figures depend on; no names and no paths."""
    model = re.search(r"model name\s*:\s*(.+)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return {
        "cores": str(os.cpu_count()),
        "cpu": model[1] if model else platform.machine(),
        "memory_gib": f"{int(memory[1]) / 2**20:.0f}" if memory else "",
        "system": f"Linux {platform.release().split('-')[0]}",
    }


def packages(python: pathlib.Path, names: Iterable[str]) -> dict[str, str]:
    """Versions of a Python and of packages that it may have."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "found = {'python': sys.version.split()[0]}\n"
        "for name in sys.argv[1:]:\n"
        "    try: found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([python, "-c", code, *names], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
