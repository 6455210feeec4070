"""How many threads a worker may use: the machine's processors, divided among the model's workers.

The worker process writes the share into OMP_NUM_THREADS before a handler is imported (see
`jitney.torchserve.thread_limits`), unless the operator set it; here torch gets the same number, because its own default
is all processors, and eight workers with eight threads each are slower than eight with one.
"""

from __future__ import annotations

import os
from typing import Any

from jitney.torchserve.thread_limits import processors
from ts.torch_handler.needs import need
from ts.torch_handler.settings import HandlerSettings

PREPROCESS_THREADS_MAX = 16
"""More PIL threads than this contend for the interpreter."""
DECODE_SHARE_MIN = 8
"""With fewer processors threads decode as much, and helpers only take memory."""
DECODE_PROCESSES_MAX = 32


def share_of_processors() -> int:
    """The processors this worker may count on."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else processors()


def set_torch_threads(settings: HandlerSettings) -> int:
    """Sets torch's number of threads; returns it."""
    torch: Any = need("torch", "a torch handler")
    threads = settings.torch_threads or share_of_processors()
    torch.set_num_threads(threads)
    return threads


def preprocess_threads(settings: HandlerSettings) -> int:
    """The threads for preparing items: one for every helper, which then do the work."""
    helpers = decode_processes(settings)
    return settings.preprocess_threads or helpers or min(share_of_processors(), PREPROCESS_THREADS_MAX)


def decode_processes(settings: HandlerSettings) -> int:
    """The processes that decode images: three quarters of a large share, none on a small one."""
    if settings.decode_processes is not None or settings.preprocess_threads is not None:
        return settings.decode_processes or 0
    share = share_of_processors()
    return min(share * 3 // 4, DECODE_PROCESSES_MAX) if share >= DECODE_SHARE_MIN else 0
