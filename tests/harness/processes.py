"""A look at processes through /proc: who belongs to a server, how much memory they hold."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = "BLACKBOX_MARK"
"""Set for a server and inherited by everything it starts, so that orphans can be found."""


def marked(mark: str) -> list[int]:
    """Every living process that carries the mark."""
    needle = f"{MARK}={mark}".encode()
    return [pid for pid in all_pids() if needle in environment(pid) and is_alive(pid)]


def all_pids() -> list[int]:
    """Every process that /proc shows."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def environment(pid: int) -> list[bytes]:
    """The environment a process was started with; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def command(pid: int) -> list[bytes]:
    """The words a process was started with; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def resident_bytes(pid: int) -> int:
    """The memory a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no VmRSS for {pid}")


def open_files(pid: int) -> int:
    """How many descriptors a process holds."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def shared_bytes(pids: list[int]) -> int:
    """What these processes hold together: pages that they share count once. One that has ended holds nothing."""
    held = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        held += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return held


@contextmanager
def memory_of(pids: Callable[[], list[int]]) -> Iterator[list[int]]:
    """What these processes hold, looked at without a pause. They are read one after the other: where one comes or goes
    meanwhile, it may be counted beside the one whose memory it got, so that look does not count."""
    samples: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            before = pids()
            held = shared_bytes(before)
            if pids() == before:
                samples.append(held)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
