"""A worker of several GPUs sees those and no others, counted from 0, as TorchServe's workers do.

The variable works only before a library has looked at the devices, so it is set before a handler is imported.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "CUDA_VISIBLE_DEVICES"


def select_gpus(spec: dict[str, Any]) -> dict[str, Any]:
    """Makes the worker's GPUs the visible ones; returns the spec with the number its first one has now."""
    gpus = spec.get("gpu_ids")
    if not gpus:
        return spec
    os.environ[VARIABLE] = ",".join(visible(gpus, os.environ.get(VARIABLE)))
    return {**spec, "gpu_id": 0}


def visible(gpus: list[int], given: str | None) -> list[str]:
    """The names of GPUs. Where the operator chose some, the server's numbers count among those."""
    names = [name.strip() for name in (given or "").split(",") if name.strip()]
    return [names[gpu] if gpu < len(names) else str(gpu) for gpu in gpus]


def gpu_of_rank(spec: dict[str, Any], rank: int) -> int | None:
    """The GPU of one of a worker's processes, among the visible ones; they share where there are too few."""
    if spec.get("gpu_id") is None:
        return None
    return rank % max(1, len(spec.get("gpu_ids") or ()))
