"""What a server holds: memory, threads, descriptors, processes."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from harness.processes import all_pids, open_files, resident_bytes
from harness.server import Server

SAMPLES = 20
SAMPLE_SECONDS = 0.25


@dataclass(frozen=True)
class Holdings:
    """One reading."""

    resident: int
    threads: int
    descriptors: int
    processes: int

    def __str__(self) -> str:
        return (
            f"{self.resident / 1e6:.1f} MB, {self.threads} threads, {self.descriptors} descriptors, "
            f"{self.processes} processes"
        )


def read(server: Server) -> Holdings:
    """The median of some readings, while nothing goes wrong."""
    readings = []
    for _ in range(SAMPLES):
        readings.append(look(server))
        time.sleep(SAMPLE_SECONDS)
    columns = zip(*((r.resident, r.threads, r.descriptors, r.processes) for r in readings), strict=True)
    return Holdings(*(int(statistics.median(column)) for column in columns))


def look(server: Server) -> Holdings:
    """One reading, now."""
    pid = server.pid
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    return Holdings(resident_bytes(pid), threads, open_files(pid), len(descendants(pid)))


def descendants(pid: int) -> list[int]:
    """The processes below one, zombies included: they are not reaped yet."""
    children: dict[int, list[int]] = {}
    for other in all_pids():
        try:
            parent = int(Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(other)
    found, open_ends = [], [pid]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return found
