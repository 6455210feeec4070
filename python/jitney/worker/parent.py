"""A worker ends with the server that started it, however the server ends and whatever the handler is doing.

The server's guard kills the whole process group of a worker when the server is gone. This is the second
belt, for when the guard was killed too: the kernel sends SIGKILL when the thread ends that started the process, which
is one that lives as long as the server. It reaches the worker itself, also while a handler holds the interpreter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

PARENT_VARIABLE = "JITNEY_WORKER_PARENT"
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Makes the kernel end this process with its server, where the kernel can."""
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):  # A Python without ctypes, a libc without prctl.
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        os._exit(1)  # It had ended before it was asked for.
