"""Threads that prepare the items of a batch side by side, for handlers whose items do not know each other.

An item that fails is a value here, not an exception: its neighbours go on. The pool never holds more
than the batches its caller brings, and a pool of one thread is the caller itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ts.torch_handler.needs import need


class ItemPool:
    """A fixed number of threads; results come in the order of the items."""

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
        if self._executor is None or len(todo) < 2:
            return [outcome(function, item) for item in todo]
        return list(self._executor.map(lambda item: outcome(function, item), todo))

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
