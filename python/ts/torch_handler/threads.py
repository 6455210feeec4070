"""How many threads a worker may use: the machine's processors, divided among the model's workers.

The worker process writes the share into OMP_NUM_THREADS before a handler is imported (see
`jitney.torchserve.threads`), unless the operator set it; here torch gets the same number, because its own default
is all processors, and eight workers with eight threads each are slower than eight with one. `ItemPool` is for
handlers that prepare the items of a batch side by side.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jitney.torchserve.threads import THREADS, processors
from ts.torch_handler.settings import HandlerSettings, need

PREPROCESS_THREADS_MAX = 16
"""More PIL threads than this contend for the interpreter."""


def share_of_processors() -> int:
    """The processors this worker may count on."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else processors()


def set_torch_threads(settings: HandlerSettings) -> int:
    """Sets torch's number of threads; returns it."""
    torch: Any = need("torch", "a torch handler")
    threads = settings.torch_threads or share_of_processors()
    torch.set_num_threads(threads)
    if settings.torch_threads:
        THREADS.pin()
    return threads


def preprocess_threads(settings: HandlerSettings) -> int:
    """The threads for preparing items."""
    return settings.preprocess_threads or min(share_of_processors(), PREPROCESS_THREADS_MAX)


class ItemPool:
    """A fixed number of threads; results come in the order of the items. A pool of one thread is the caller itself."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._executor = ThreadPoolExecutor(threads, "prepare", single_threaded) if threads > 1 else None
        if self._executor is not None:
            started = threading.Barrier(threads + 1)
            for _ in range(threads):
                self._executor.submit(started.wait)
            started.wait()

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """One result per item: what the function returned, or the exception it raised."""
        todo = list(items)
        return [outcome(function, item) for item in todo] if len(todo) < 2 else self.start(function, todo)()

    def start(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Callable[[], list[Any]]:
        """Like `map`, but goes on at once; the results come when what it returns is called."""
        todo = list(items)
        if self._executor is None or not todo:
            return lambda: [outcome(function, item) for item in todo]
        results: list[Any] = [None] * len(todo)
        places = iter(range(len(todo)))

        def work() -> None:
            for place in places:  # Every thread takes the next that no other has taken.
                results[place] = outcome(function, todo[place])

        working = [self._executor.submit(work) for _ in range(min(self.threads, len(todo)))]

        def finished() -> list[Any]:
            for one in working:
                one.result()
            return results

        return finished

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs something on a thread of the pool, where torch starts no further threads."""
        if self._executor is None:
            return function(*arguments)
        return self._executor.submit(function, *arguments).result()

    def close(self) -> None:
        """Ends the threads."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)


def outcome(function: Callable[[Any], Any], item: Any) -> Any:
    """The result for one item, or its exception."""
    try:
        return function(item)
    except Exception as error:
        return error


def single_threaded() -> None:
    """Keeps torch operations of this thread from starting a team of threads of their own.

    Torch fixes the number for a thread when it is first read there; reading it here does that before the main
    thread gets its own number back.
    """
    torch = need("torch", "a torch handler")
    torch.set_num_threads(1)
    torch.get_num_threads()
