"""The share of a GPU that a worker may use, its turns on it, and what it holds there.

Only workers with a GPU come here, and torch is looked up among the loaded modules, never imported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from jitney.torchserve.loading import EntryPoint

TELL_SECONDS = 1.0
"""How often the memory is told at most: to ask for it takes as long as several answers."""

Turn = Callable[[], AbstractContextManager[Any]]
"""Begins a turn; the GPU is the worker's until the turn ends."""


class GpuUse:
    """The memory that this process holds on GPUs."""

    def __init__(self) -> None:
        self._told = 0.0

    def reserved_bytes(self) -> int | None:
        """What torch has reserved; None before it uses a GPU."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return None
        return sum(int(cuda.memory_reserved(gpu)) for gpu in range(cuda.device_count()))

    def bytes_to_tell(self) -> int | None:
        """The same, if it was not told a moment ago."""
        now = time.monotonic()
        if now - self._told < TELL_SECONDS:
            return None
        self._told = now
        return self.reserved_bytes()


def limit_gpu_memory(spec: dict[str, Any]) -> None:
    """Keeps the worker to its share of its GPU's memory, if it has one."""
    if spec.get("gpu_memory_fraction") is None or spec.get("gpu_id") is None:
        return
    from jitney.gpu.memory import limit_memory

    limit_memory(spec["gpu_memory_fraction"], spec["gpu_id"])


def turn_of(spec: dict[str, Any]) -> Turn | None:
    """How the worker takes its turns, if models that share its GPU run one after another."""
    path = spec.get("gpu_turns")
    if path is None:
        return None
    from jitney.gpu.turns import turns

    return lambda: turns(path)


def in_turn(entry_point: EntryPoint, turn: Turn) -> EntryPoint:
    """The entry point with every call in a turn of its own."""

    def call(rows: Any, context: Any) -> Any:
        with turn():
            return entry_point(rows, context)

    return call
