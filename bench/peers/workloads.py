"""The workloads: which model, which body, which load."""

from __future__ import annotations

from dataclasses import dataclass

JSON_BYTES = 100
BIG_BYTES = 1 << 20
OBJECTIVE_MS = 100
TIMEOUT_S = 2
POOL = 4096
"""Connections that an open loop may have at a time."""


@dataclass(frozen=True)
class Load:
    """One way of asking: clients that wait (`connections`), or requests that come at a rate whatever happens."""

    name: str
    connections: int = 0
    rate: int = 0
    then: int = 0
    """Requests per second after the overload, to see whether the server comes back."""
    share: float = 1.0
    """How long it lasts, relative to the others."""
    grpc: bool = False
    by_us: bool = False
    """Whether `jitney bench` asks for clients that wait, in place of wrk; of rates it always does."""
    scenario: str = ""
    """The scenario of LoadGen that drives it, if that does."""

    @property
    def open(self) -> bool:
        """Whether requests come whatever happens."""
        return self.rate > 0

    @property
    def by_bench(self) -> bool:
        """Whether `jitney bench` drives it."""
        return self.open or self.by_us


@dataclass(frozen=True)
class Workload:
    """A model with what is sent to it."""

    name: str
    title: str
    model: str
    raw: bool
    batch: int
    delay_ms: int
    """The window of servers that have one; 0 asks for the smallest."""
    loads: tuple[Load, ...]
    objective_ms: int = 0
    """What Jitney's adaptive policy is asked for."""
    queue: int = 1000


W1 = Workload(
    "W1",
    "Overhead: a no-op that returns the length of its input, a JSON body of 100 bytes, batches of at most 32, the smallest window",
    "noop",
    False,
    32,
    0,
    (
        Load("1 connection", connections=1),
        Load("32 connections", connections=32),
        Load("256 connections", connections=256),
        Load("256 connections by jitney bench", connections=256, by_us=True),
    ),
)
W2 = Workload(
    "W2",
    "Batching: a model that sleeps 5 ms + 0.2 ms per item, batches of at most 32, windows of 10 ms; at most 2,807 requests/s are possible",
    "sleepy",
    False,
    32,
    10,
    (
        Load("64 connections", connections=64),
        Load("300/s", rate=300),
        Load("1000/s", rate=1000),
        Load("2000/s", rate=2000),
    ),
    objective_ms=OBJECTIVE_MS,
)
W3 = Workload(
    "W3",
    "A real model: ResNet-18 on one thread of torch, JPEG bodies of 47 KB, batches of at most 8, 16 connections",
    "classifier",
    True,
    8,
    10,
    (Load("16 connections", connections=16, share=2.0),),
)
W4 = Workload(
    "W4",
    "Large bodies: a no-op that returns the length of a body of 1 MiB, batches of at most 8, the smallest window, 8 connections",
    "noop",
    True,
    8,
    0,
    (Load("8 connections", connections=8),),
)
W5 = Workload(
    "W5",
    "Overload: the model of W2 gets 5,000 requests/s (1.8 times what is possible), clients wait 2 s at most; then 300/s for 3 s",
    "sleepy",
    False,
    32,
    10,
    (Load("5000/s", rate=5000, then=300),),
    objective_ms=OBJECTIVE_MS,
)
LOADGEN_MS = 500
"""What 99 of 100 answers must keep to in LoadGen's Server scenario."""
W6 = Workload(
    "W6",
    "MLCommons' LoadGen drives the model and the photo of W3 (this uses LoadGen, and is not an MLPerf result). "
    "Offline: all samples at once, 64 connections. Server: Poisson arrivals; the highest of the rates tried "
    f"(95, 90, 80, 70, 60, 50, 40 and 30 % of what the server did offline just before) at which LoadGen calls the run valid, found by halving, with 99 % of the answers within {LOADGEN_MS} ms",
    "classifier",
    True,
    8,
    10,
    (
        Load("Offline", scenario="Offline", share=3.0),
        Load("Server", scenario="Server", share=6.0),
    ),
)
W7 = Workload(
    "W7",
    "TorchServe's own `benchmark-ab.py`, unchanged, starts both servers by the name `torchserve`, registers the archive of W1 and drives it with ApacheBench: 20,000 requests, 100 at a time, batches of at most 32",
    "noop",
    False,
    32,
    1,
    (Load("benchmark-ab.py", connections=100),),
)
GRPC = Load("256 streams", connections=256, grpc=True)
WORKLOADS = {one.name: one for one in (W1, W2, W3, W4, W5, W6)}
