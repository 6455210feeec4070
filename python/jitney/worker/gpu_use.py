"""What a worker holds on its GPU, told to the server now and then, and its turns there.

Only workers with a GPU come here, and torch is looked up among the loaded modules, never imported.
"""

from __future__ import annotations

import time
from typing import Any

from jitney.gpu.device import loaded_torch
from jitney.gpu.memory import memory_used
from jitney.gpu.turns import GpuTurns
from jitney.torchserve.loading import EntryPoint

TELL_SECONDS = 1.0
"""How often the memory is told at most: to ask for it takes as long as several answers."""


class GpuUse:
    """The memory that this process holds on its GPU."""

    def __init__(self, gpu: int) -> None:
        self._gpu = gpu
        self._told: float | None = None

    def bytes_to_tell(self) -> int | None:
        """The memory, if there is any and it was not told a moment ago."""
        now = time.monotonic()
        if self._told is not None and now - self._told < TELL_SECONDS:
            return None
        self._told = now
        return memory_used(self._gpu) if loaded_torch() is not None else None


def in_turn(entry_point: EntryPoint, turns: GpuTurns) -> EntryPoint:
    """The entry point with every call in a turn of its own."""

    def call(rows: Any, context: Any) -> Any:
        return turns.run(lambda: entry_point(rows, context))

    return call
