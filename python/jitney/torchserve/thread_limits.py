"""A worker's share of the machine's processors, as environment variables for the libraries it will import.

Torch, numpy and ONNX Runtime start as many threads as there are processors unless OMP_NUM_THREADS is set; several
workers that all do so slow each other down. Their threads also wait for each other by spinning, which takes processor
time from other work (decoding of the next batch, other workers): on a busy machine a ResNet-18 batch took 2.7 s of
processor time spinning and 0.7 s sleeping. An operator's own values are left alone.
"""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "OMP_NUM_THREADS"
WAITING_VARIABLE = "OMP_WAIT_POLICY"


def limit_threads(spec: dict[str, Any]) -> None:
    """Sets the variables, before any handler is imported."""
    os.environ.setdefault(WAITING_VARIABLE, "PASSIVE")
    workers = spec.get("workers")
    if isinstance(workers, int) and workers > 0:
        os.environ.setdefault(VARIABLE, str(max(1, processors() // workers)))


def processors() -> int:
    """The processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
