"""Who is measured when, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .servers import Server
from .workloads import Load, Workload

RECOVERY_S = 3.0
AROUND_S = 1.0
"""What starting and ending the tools takes."""


@dataclass(frozen=True)
class Lengths:
    """How long loads last, in seconds."""

    seconds: float = 3.0
    overload: float = 10.0
    slow_share: float = 0.6
    """Of these for servers that are slow anyway."""

    def of(self, server: Server, load: Load) -> float:
        """One load on one server; whole seconds, because wrk knows no others."""
        length = self.overload if load.then else self.seconds * load.share
        return float(max(1, round(length * (self.slow_share if server.slow else 1.0))))


@dataclass(frozen=True)
class Step:
    """One server under all loads of one workload."""

    round: int
    workload: Workload
    server: Server
    loads: tuple[Load, ...]

    def estimate(self, lengths: Lengths) -> float:
        """Seconds that it takes, about."""
        loads = sum(lengths.of(self.server, load) + (RECOVERY_S + 1 if load.then else 0) for load in self.loads)
        model = 6.0 if self.workload.model == "classifier" else 0.0
        return self.server.start_s + model + self.server.warm_s + AROUND_S + loads


def order(servers: Sequence[Server], turn: int) -> list[Server]:
    """Forwards in the first round, backwards in the second, and so on, so that no one is always first."""
    return list(servers) if turn % 2 == 0 else list(reversed(servers))


def steps(servers: Sequence[Server], workloads: Iterable[Workload], rounds: int) -> list[Step]:
    """Round by round, workload by workload, one server after the other."""
    workloads = list(workloads)
    return [
        Step(turn, workload, server, loads)
        for turn in range(rounds)
        for workload in workloads
        for server in order(servers, turn)
        if (loads := server.loads(workload))
    ]
