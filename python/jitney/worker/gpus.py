"""A worker's GPUs: which it sees, how many queues it has to them, what it holds there, and its turns.

A worker of several GPUs sees those and no others, counted from 0, as TorchServe's workers do. The variables work only
before a library has looked at the devices, so they are set before a handler is imported. Torch is looked up among the
loaded modules, never imported.
"""

from __future__ import annotations

import os
import time
from typing import Any

from jitney.gpu.device import QUEUES, QUEUES_VARIABLE, loaded_torch, memory_used
from jitney.gpu.turns import GpuTurns
from jitney.torchserve.loading import EntryPoint

VARIABLE = "CUDA_VISIBLE_DEVICES"
MPS_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
"""Where several processes share a GPU by MPS they share its queues too, and are left with CUDA's number."""

COMPILERS_VARIABLE = "TORCHINDUCTOR_COMPILE_THREADS"
COMPILERS = "1"
"""Torch starts a process per processor to compile in, also where it finds everything compiled. They take the
processors from the worker's first seconds, and there is nothing for them: processes of ours compile a model."""


def select_gpus(spec: dict[str, Any]) -> dict[str, Any]:
    """Makes the worker's GPUs the visible ones, with queues enough; returns the spec with its first one's number."""
    settings = spec.get("model_yaml_config") or {}
    gpus = spec.get("gpu_ids")
    if not gpus and spec.get("gpu_id") is not None and sees_one(settings, os.environ.get(VARIABLE, "")):
        gpus = [spec["gpu_id"]]
    if gpus or spec.get("gpu_id") is not None:
        set_variables(settings)
    if not gpus:
        return spec
    os.environ[VARIABLE] = ",".join(visible(gpus, os.environ.get(VARIABLE)))
    return {**spec, "gpu_id": 0}


def sees_one(settings: dict[str, Any], names: str) -> bool:
    """Whether a worker may see no GPU but its own: its engine takes the first that it sees, or GPUs are cut into parts
    (MIG), of which CUDA shows a process only the first."""
    return bool((settings.get("jitney") or {}).get("own_gpus")) or "MIG-" in names


def set_variables(settings: dict[str, Any]) -> None:
    """What CUDA and torch's compiler read once. What the operator has set stays."""
    if MPS_VARIABLE not in os.environ:
        os.environ.setdefault(QUEUES_VARIABLE, str(QUEUES))
    if settings.get("pt2"):
        os.environ.setdefault(COMPILERS_VARIABLE, COMPILERS)


def visible(gpus: list[int], given: str | None) -> list[str]:
    """The names of GPUs. Where the operator chose some, the server's numbers count among those."""
    names = [name.strip() for name in (given or "").split(",") if name.strip()]
    return [names[gpu] if gpu < len(names) else str(gpu) for gpu in gpus]


def gpu_of_rank(spec: dict[str, Any], rank: int) -> int | None:
    """The GPU of one of a worker's processes, among the visible ones; they share where there are too few."""
    if spec.get("gpu_id") is None:
        return None
    return rank % max(1, len(spec.get("gpu_ids") or ()))


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
