"""`@serve.multiplexed`: a method that loads models by their id, of which a replica keeps the latest used ones."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from jitney.compat.serve.context import get_multiplexed_model_id

CACHE = "__serve_models__"
MULTIPLEXED = "__serve_multiplexed__"
"""The attribute of functions that load models."""


def multiplexed(func: Callable[..., Any] | None = None, max_num_models_per_replica: int = 3) -> Any:
    """Keeps what the method returned for the latest used ids; -1 keeps all. The function must be `async`."""
    if func is not None and not callable(func):
        raise TypeError("@serve.multiplexed decorates functions; its options are given by name")
    most = max_num_models_per_replica
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"max_num_models_per_replica must be a whole number, not {most!r}")
    if most != -1 and most < 1:
        raise ValueError(f"max_num_models_per_replica must be at least 1, or -1 for no limit, not {most!r}")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError("functions decorated with @serve.multiplexed must be `async def`")
        parameters = list(inspect.signature(function).parameters)
        if len(parameters) not in (1, 2):
            raise TypeError("a function with @serve.multiplexed takes the model's id, and `self` if it is a method")
        alone = ModelCache(most)

        @functools.wraps(function)
        async def load(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            if len(parameters) == 1:
                return await alone.get(given[0] if given else get_multiplexed_model_id(), function)
            caches: dict[Any, ModelCache] = vars(given[0]).setdefault(CACHE, {})
            cache = caches.setdefault(function.__name__, ModelCache(most))
            model_id = given[1] if len(given) > 1 else get_multiplexed_model_id()
            return await cache.get(model_id, functools.partial(function, given[0]))

        setattr(load, MULTIPLEXED, True)
        return load

    return decorate if func is None else decorate(func)


class ModelCache:
    """Models by their id, the latest used last. What is loading now is loaded once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._models: OrderedDict[str, Any] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Any]] = {}
        self._room: asyncio.Lock | None = None

    async def get(self, model_id: Any, load: Callable[[str], Any]) -> Any:
        """The model of this id."""
        if not isinstance(model_id, str):
            raise TypeError(f"the model's id must be a text, not {model_id!r}")
        if not model_id:
            raise ValueError("the request names no model: set the header serve_multiplexed_model_id, or the option")
        if model_id in self._models:
            self._models.move_to_end(model_id)
            return self._models[model_id]
        task = self._loading.get(model_id)
        if task is None:
            task = self._loading[model_id] = asyncio.ensure_future(self._load(model_id, load))
            task.add_done_callback(lambda _: self._loading.pop(model_id, None))
        return await asyncio.shield(task)

    async def _load(self, model_id: str, load: Callable[[str], Any]) -> Any:
        """Makes room, then loads, one model at a time."""
        self._room = self._room or asyncio.Lock()
        async with self._room:
            while self._most != -1 and len(self._models) >= self._most:
                _, oldest = self._models.popitem(last=False)
                await _end(oldest)
            self._models[model_id] = model = await load(model_id)
            return model

    @property
    def ids(self) -> list[str]:
        """The models that are loaded."""
        return list(self._models)


async def _end(model: Any) -> None:
    """A model that makes room is told so, if it has something to end."""
    end = getattr(model, "__del__", None)
    if end is None:
        return
    done = end()
    if inspect.isawaitable(done):
        await done
