"""What was promised, as far as this comparison can tell."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from .results import Results
from .workloads import GRPC


@dataclass(frozen=True)
class Goal:
    """A promise that can be read off the figures."""

    text: str
    bar: str
    value: Callable[[Results], float | None]
    met: Callable[[float], bool]
    unit: str = ""


def median_of(
    server: str, workload: str, load: str, name: str, scale: float = 1.0
) -> Callable[[Results], float | None]:
    """A median, perhaps in another unit."""

    def read(results: Results) -> float | None:
        value = results.median(server, workload, load, name)
        return None if value is None else value * scale

    return read


def against_mosec(server: str, workload: str, load: str, name: str) -> Callable[[Results], float | None]:
    """Our value over mosec's in the same round."""

    def read(results: Results) -> float | None:
        ratios = results.ratios(server, "mosec", workload, load, name)
        return statistics.median(ratios) if ratios else None

    return read


def at_most(bar: float) -> Callable[[float], bool]:
    """A bar from above."""
    return lambda value: value <= bar


def at_least(bar: float) -> Callable[[float], bool]:
    """A bar from below."""
    return lambda value: value >= bar


C1, C256, C8, OVER = "1 connection", "256 connections", "8 connections", "5000/s"
C256_BY_US = "256 connections by jitney bench"
TS, SERVE, DEFINED = "jitney-torchserve", "jitney-serve", "jitney-definition"
OVER_GRPC, OBJECTIVE = "jitney-grpc", "jitney-objective"
GOALS = (
    Goal(
        "W1, 256 connections, `jitney torchserve` with its logs: CPU over mosec's",
        "at most 0.5",
        against_mosec(TS, "W1", C256, "cpu_us"),
        at_most(0.5),
    ),
    Goal(
        "W1, 256 connections, `jitney serve`: CPU over mosec's",
        "at most 0.4",
        against_mosec(SERVE, "W1", C256, "cpu_us"),
        at_most(0.4),
    ),
    Goal(
        "W1, 256 connections by `jitney bench`, `jitney serve`: CPU over mosec's",
        "at most 0.33",
        against_mosec(SERVE, "W1", C256_BY_US, "cpu_us"),
        at_most(0.33),
    ),
    Goal(
        "W1, 256 connections, a definition: CPU of the worker",
        "at most 10 µs",
        median_of(DEFINED, "W1", C256, "worker_us"),
        at_most(10),
        " µs",
    ),
    Goal(
        "W1, 256 connections, a definition: CPU together",
        "at most 20 µs",
        median_of(DEFINED, "W1", C256, "cpu_us"),
        at_most(20),
        " µs",
    ),
    Goal(
        "W1, 256 streams of gRPC: CPU of the worker",
        "at most 10 µs",
        median_of(OVER_GRPC, "W1", GRPC.name, "worker_us"),
        at_most(10),
        " µs",
    ),
    Goal(
        "W1, 256 streams of gRPC: CPU together",
        "at most 20 µs",
        median_of(OVER_GRPC, "W1", GRPC.name, "cpu_us"),
        at_most(20),
        " µs",
    ),
    Goal(
        "W1, 1 connection, `jitney serve`: p50",
        "at most 0.08 ms",
        median_of(SERVE, "W1", C1, "p50_ms"),
        at_most(0.08),
        " ms",
    ),
    Goal(
        "W4, `jitney torchserve` (window): answers/s over mosec's",
        "at least 3",
        against_mosec(TS, "W4", C8, "rate"),
        at_least(3),
    ),
    Goal(
        "W4, `jitney serve` (adaptive): answers/s over mosec's",
        "at least 3",
        against_mosec(SERVE, "W4", C8, "rate"),
        at_least(3),
    ),
    Goal(
        "W4, `jitney torchserve` (window): CPU over mosec's",
        "at most 0.35",
        against_mosec(TS, "W4", C8, "cpu_us"),
        at_most(0.35),
    ),
    Goal(
        "W4, `jitney serve` (adaptive): CPU over mosec's",
        "at most 0.35",
        against_mosec(SERVE, "W4", C8, "cpu_us"),
        at_most(0.35),
    ),
    Goal(
        "W5, `jitney serve`: answers/s within 100 ms",
        "at least 2,650",
        median_of(SERVE, "W5", OVER, "good_per_s"),
        at_least(2650),
        "/s",
    ),
    Goal(
        "W5, `jitney serve`: good again after",
        "at most 1 s",
        median_of(SERVE, "W5", OVER, "recovery_s"),
        at_most(1),
        " s",
    ),
    Goal(
        "W5, `jitney torchserve` with an objective beside its window: answers/s within 100 ms",
        "at least 2,600",
        median_of(OBJECTIVE, "W5", OVER, "good_per_s"),
        at_least(2600),
        "/s",
    ),
)
