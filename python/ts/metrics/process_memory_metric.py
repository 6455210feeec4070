"""Memory of processes, by process id; the server measures its workers itself, this is for code that asks."""

from __future__ import annotations

import sys
from collections.abc import Iterable

KIBIBYTE = 1024


def get_cpu_usage(pid: int | str) -> int:
    """Bytes of memory a process uses; 0 if it is gone."""
    try:
        with open(f"/proc/{int(pid)}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * KIBIBYTE
    except (OSError, ValueError):
        pass
    return 0


def check_process_mem_usage(stdin: Iterable[str]) -> None:
    """Writes `pid:bytes` for every line of comma-separated process ids."""
    for line in stdin:
        pids = [pid for pid in line.strip().split(",") if pid]
        sys.stdout.write("".join(f"{pid}:{get_cpu_usage(pid)}\n" for pid in pids))
    sys.stdout.flush()
