"""Workers that share a GPU and run one at a time: a lock file for each GPU, which the server names.

The kernel frees the locks of a process that ends, however it ends. Without a lock file nothing is locked and nothing
is paid.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from jitney.gpu.device import wait_for_gpu

T = TypeVar("T")
MODE = 0o600


class GpuTurns:
    """Whose turn it is on one GPU.

    There are two locks. Who wants the GPU takes the lock `next` first and gives it back once he has the GPU. So there
    is one who is next, and whoever gives the GPU back and wants it again at once stands behind him.
    """

    def __init__(self, path: str) -> None:
        self._here = threading.Lock()
        """Locks of a file belong to the process, so its threads need one of their own."""
        self._gpu = os.open(path, os.O_RDWR | os.O_CREAT, MODE)
        self._next = os.open(f"{path}.next", os.O_RDWR | os.O_CREAT, MODE)
        os.register_at_fork(after_in_child=self.close)

    def __enter__(self) -> None:
        self._here.acquire()
        fcntl.flock(self._next, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._gpu, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._gpu, fcntl.LOCK_UN)
        self._here.release()

    def run(self, function: Callable[[], T]) -> T:
        """Calls a function in turn; the turn ends when the GPU has done what the function gave it."""
        with self:
            result = function()
            wait_for_gpu()
            return result

    def close(self) -> None:
        """Closes the files; a process that was forked must not keep the locks of its parent."""
        for file in (self._gpu, self._next):
            if file >= 0:
                os.close(file)
        self._gpu = self._next = -1


def turns_at(path: str | None) -> GpuTurns | None:
    """The turns of the GPU with this lock file; None if its models need not take turns."""
    return GpuTurns(path) if path else None
