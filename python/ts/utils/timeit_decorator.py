"""A decorator that prints how long a call took."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

Called = TypeVar("Called", bound=Callable[..., Any])


def timeit(func: Called) -> Called:
    """Prints the time and the processor time of each call."""

    @functools.wraps(func)
    def timed(*args: Any, **kwargs: Any) -> Any:
        started, used = time.perf_counter(), time.process_time()
        try:
            return func(*args, **kwargs)
        finally:
            took, cpu = time.perf_counter() - started, time.process_time() - used
            print(f"func: {func.__name__} took {took:.4f} s and {cpu:.4f} s of processor time")

    return timed  # type: ignore[return-value]
