"""`@serve.multiplexed`: Ray's name for `@jitney.multiplexed`, with Ray's checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from jitney.compat.serve.context import get_multiplexed_model_id
from jitney.definition.multiplexed import UNLIMITED, loader


def multiplexed(func: Callable[..., Any] | None = None, max_num_models_per_replica: int = 3) -> Any:
    """Keeps what the method returned for the latest used ids; -1 keeps all. The function must be `async`."""
    if func is not None and not callable(func):
        raise TypeError("@serve.multiplexed decorates functions; its options are given by name")
    most = max_num_models_per_replica
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"max_num_models_per_replica must be a whole number, not {most!r}")
    if most != UNLIMITED and most < 1:
        raise ValueError(f"max_num_models_per_replica must be at least 1, or -1 for no limit, not {most!r}")

    def decorate(function: Callable[..., Any]) -> Any:
        if not inspect.iscoroutinefunction(function):
            raise TypeError("functions decorated with @serve.multiplexed must be `async def`")
        if len(inspect.signature(function).parameters) not in (1, 2):
            raise TypeError("a function with @serve.multiplexed takes the model's id, and `self` if it is a method")
        return loader(function, most, get_multiplexed_model_id)

    return decorate if func is None else decorate(func)
