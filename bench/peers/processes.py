"""Starts a server, finds all of its processes, reads what they cost, and leaves none behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

TICKS = os.sysconf("SC_CLK_TCK")
MARK = "JITNEY_PEERS_MARK"
"""A variable that every process of a server inherits, so that none can hide by leaving its parent."""


@dataclass(frozen=True)
class Cost:
    """CPU seconds of a server's processes so far."""

    front: float
    others: float

    @property
    def total(self) -> float:
        """Of all of them."""
        return self.front + self.others


class Running:
    """A server's processes."""

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], folder: pathlib.Path, front: str | None
    ) -> None:
        self.front = front
        self.mark = secrets.token_hex(8)
        self.log = folder / "output.log"
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                list(command),
                cwd=folder,
                env={**variables, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pids(self) -> list[int]:
        """All processes that carry the mark."""
        mark = f"{MARK}={self.mark}".encode()
        return [pid for pid in every_pid() if mark in read(pid, "environ")]

    def cost(self) -> Cost:
        """CPU seconds by now, with those of children that have ended."""
        front = others = 0.0
        for pid in self.pids():
            stat = read(pid, "stat").decode(errors="replace")
            if not stat:
                continue
            name, _, rest = stat.partition("(")[2].rpartition(")")
            seconds = cpu_seconds(pid) + sum(map(int, rest.split()[13:15])) / TICKS
            if name == self.front:
                front += seconds
            else:
                others += seconds
        return Cost(front, others)

    def memory_mib(self) -> float:
        """Memory of all processes, shared pages divided among those who share them."""
        total = 0
        for pid in self.pids():
            for row in read(pid, "smaps_rollup").splitlines():
                if row.startswith(b"Pss:"):
                    total += int(row.split()[1])
        return total / 1024

    def ended(self) -> bool:
        """Whether the process that was started is gone."""
        return self.process.poll() is not None

    def stop(self, patience: float = 10.0) -> None:
        """Asks the server to end, then ends whatever is left of it."""
        if not self.ended():
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        deadline = time.monotonic() + patience
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not self.ended():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(1)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(pids)} processes of the server could not be ended")
            time.sleep(0.02)

    def tail(self, count: int = 15) -> str:
        """The last lines that it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


def every_pid() -> Iterator[int]:
    """The processes of this machine."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def read(pid: int, what: str) -> bytes:
    """A file of a process, empty if it has gone or is another user's."""
    try:
        return pathlib.Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def cpu_seconds(pid: int) -> float:
    """CPU time of a process to the nanosecond: /proc counts in hundredths of a second, too coarse for short loads."""
    clock = (~pid << 3) | 2  # What clock_getcpuclockid gives.
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
