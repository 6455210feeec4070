"""How many threads a worker may use: the machine's processors, divided among the model's workers.

The worker process writes the share into OMP_NUM_THREADS before a handler is imported (see
`jitney.worker.share`), unless the operator set it; here torch is told the same, because its own default
is all processors, and eight workers with eight threads each are slower than eight with one.
"""

from __future__ import annotations

import os
from typing import Any

from ts.torch_handler.needs import need
from ts.torch_handler.wishes import Wishes

PREPROCESS_THREADS_MAX = 16
"""More PIL threads than this contend for the interpreter."""
DECODE_SHARE_MIN = 8
"""With fewer processors threads decode as much, and helpers only take memory."""
DECODE_PROCESSES_MAX = 32


def share_of_processors() -> int:
    """The processors this worker may count on."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else processors()


def processors() -> int:
    """The processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def settle_torch(wishes: Wishes) -> int:
    """Tells torch its number of threads; returns it."""
    torch: Any = need("torch", "a torch handler")
    threads = wishes.torch_threads or share_of_processors()
    torch.set_num_threads(threads)
    return threads


def preprocess_threads(wishes: Wishes) -> int:
    """The threads for preparing items: one for every helper, which then do the work."""
    helpers = decode_processes(wishes)
    return wishes.preprocess_threads or helpers or min(share_of_processors(), PREPROCESS_THREADS_MAX)


def decode_processes(wishes: Wishes) -> int:
    """The processes that decode images: three quarters of a large share, none on a small one."""
    if wishes.decode_processes is not None or wishes.preprocess_threads is not None:
        return wishes.decode_processes or 0
    share = share_of_processors()
    return min(share * 3 // 4, DECODE_PROCESSES_MAX) if share >= DECODE_SHARE_MIN else 0
