"""How many threads a worker computes with: the processors, divided among the workers of its model that serve.

Torch, numpy and ONNX Runtime start as many threads as there are processors unless OMP_NUM_THREADS is set; several
workers that all do so slow each other down. Their threads also wait for each other by spinning, which takes processor
time from other work (decoding of the next batch, other workers): on a busy machine a ResNet-18 batch took 2.7 s of
processor time spinning and 0.7 s sleeping. An operator's own values are left alone, and so is what a model chose.
"""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "OMP_NUM_THREADS"
WAITING_VARIABLE = "OMP_WAIT_POLICY"


class ThreadShare:
    """The threads of this process. Torch and what threadpoolctl knows follow the number of workers between batches;
    sessions of ONNX Runtime and compiled programs keep what they were made with."""

    def __init__(self) -> None:
        self.given = 0
        """So many were given; 0 where somebody else has chosen."""
        self._wanted = 0
        self._pinned = False
        """Whether the processors that this process may run on are its own."""

    def begin(self, spec: dict[str, Any]) -> None:
        """Sets the variables, before any handler is imported."""
        os.environ.setdefault(WAITING_VARIABLE, "PASSIVE")
        workers = spec.get("workers")
        self.given = 0
        self._pinned = bool(spec.get("pinned"))
        if isinstance(workers, int) and workers > 0 and VARIABLE not in os.environ:
            self.given = self._share(workers)
            os.environ[VARIABLE] = str(self.given)
            torch = sys.modules.get("torch")
            if torch is not None:  # Imported before this worker was forked: the variable comes too late.
                torch.set_num_threads(self.given)
        self._wanted = self.given

    def pin(self) -> None:
        """The model has chosen its number of threads."""
        self.given = self._wanted = 0

    def note(self, workers: int) -> None:
        """So many workers serve now; on any thread."""
        if self.given and workers > 0:
            self._wanted = self._share(workers)

    def follow(self) -> None:
        """Takes up what was noted; on the thread that runs the model, since torch keeps the number for each thread."""
        if self._wanted != self.given:
            self._set(self._wanted)

    def take(self, workers: int) -> None:
        """Both, where one thread reads and runs the model."""
        self.note(workers)
        self.follow()

    def _share(self, workers: int) -> int:
        return processors() if self._pinned else threads_of(workers)

    def _set(self, threads: int) -> None:
        torch = sys.modules.get("torch")
        has_threads = callable(getattr(torch, "get_num_threads", None))
        if torch is not None and has_threads and torch.get_num_threads() != self.given:
            self.pin()
            return
        self.given = threads
        os.environ[VARIABLE] = str(threads)
        limits = getattr(sys.modules.get("threadpoolctl"), "threadpool_limits", None)
        if limits is not None:  # Scikit-learn has loaded it.
            limits(threads)
        if torch is not None and has_threads:
            torch.set_num_threads(threads)


THREADS = ThreadShare()
"""Of this process, as the number of threads is."""


def threads_of(workers: int) -> int:
    """The threads of one of so many workers."""
    return max(1, processors() // workers)


def processors() -> int:
    """The processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
