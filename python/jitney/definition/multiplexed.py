"""`@jitney.multiplexed`: a method that loads models by their id, of which a worker keeps the latest used ones.

For what many requests share a process for: adapters of one base model, weights of customers. The server sends a request
to the worker that has its model, and the requests of a batch ask for the same one.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jitney.call.context import multiplexed_model_id
from jitney.call.errors import BadInput, DefinitionError
from jitney.call.request import MODEL_ID_HEADER

if TYPE_CHECKING:
    import asyncio

F = TypeVar("F", bound=Callable[..., Any])

CACHES = "__jitney_models__"
MULTIPLEXED = "__jitney_multiplexed__"
"""The attribute of functions that load models, and of classes that say it themselves: how many are kept."""
UNLIMITED = -1
TOLD_MAX = 1024
"""The server follows so many models of a worker."""


def multiplexed(*, max: int = 8) -> Callable[[F], F]:
    """Keeps what the method returns for the `max` ids that were used last, in each worker.

    The method takes the id and may be `async`; called without one it takes that of the request
    (`jitney.multiplexed_model_id()`, from the header `serve_multiplexed_model_id`). A model that makes room is told so
    by its `close()`, or `__del__()`, if it has one.
    """
    if isinstance(max, bool) or not isinstance(max, int) or max < 1:
        raise DefinitionError(f"@jitney.multiplexed: max must be a whole number from 1 on, not {max!r}")

    def decorate(function: F) -> F:
        return cast(F, loader(function, max, _asked))

    return decorate


def _asked() -> str:
    model_id = multiplexed_model_id()
    if not model_id:
        raise BadInput(f"the request names no model: send its id in the header {MODEL_ID_HEADER}")
    return model_id


def loader(function: Any, most: int, asked: Callable[[], str]) -> Any:
    """The function with its models kept; `asked` gives the id where a call names none."""
    is_method = len(inspect.signature(function).parameters) == 2
    alone = ModelCache(most)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        owner = given[:1] if is_method else []
        cache = alone
        if is_method:
            cache = vars(owner[0]).setdefault(CACHES, {}).setdefault(function.__name__, ModelCache(most))
        model_id = given[-1] if len(given) > len(owner) else asked()
        get = cache.get_async if is_async else cache.get
        return get(model_id, functools.partial(function, *owner))

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    is_async = inspect.iscoroutinefunction(function)
    load = functools.wraps(function)(call_async if is_async else call)
    setattr(load, MULTIPLEXED, most)
    return load


def models_kept(target: Any) -> int:
    """How many models a worker of this class keeps, as the server is told; 0 if it loads none."""
    owner = target if isinstance(target, type) else type(target)
    written = [owner, *(one for base in owner.__mro__[:-1] for one in vars(base).values())]
    told = [most for one in written if isinstance(most := getattr(one, MULTIPLEXED, None), int)]
    return TOLD_MAX if UNLIMITED in told else min(max(told, default=0), TOLD_MAX)


class ModelCache:
    """Models by their id, the latest used last. What is loading now is loaded once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._models: OrderedDict[str, Any] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Any]] = {}
        self._room: asyncio.Lock | None = None

    def get(self, model_id: Any, load: Callable[[str], Any]) -> Any:
        """The model of this id."""
        if not self._has(model_id):
            for oldest in self._surplus():
                _end(oldest)
            self._models[model_id] = load(model_id)
        return self._models[model_id]

    async def get_async(self, model_id: Any, load: Callable[[str], Any]) -> Any:
        """The same for functions that are `async`."""
        import asyncio

        if self._has(model_id):
            return self._models[model_id]
        task = self._loading.get(model_id)
        if task is None:
            task = self._loading[model_id] = asyncio.ensure_future(self._load(model_id, load))
            task.add_done_callback(lambda _: self._loading.pop(model_id, None))
        return await asyncio.shield(task)

    async def _load(self, model_id: str, load: Callable[[str], Any]) -> Any:
        """Makes room, then loads, one model at a time."""
        import asyncio

        self._room = self._room or asyncio.Lock()
        async with self._room:
            for oldest in self._surplus():
                done = _end(oldest)
                if inspect.isawaitable(done):
                    await done
            self._models[model_id] = model = await load(model_id)
            return model

    def _has(self, model_id: Any) -> bool:
        """Whether it is loaded; then it is the latest used."""
        if not isinstance(model_id, str):
            raise TypeError(f"the model's id must be a text, not {model_id!r}")
        if not model_id:
            raise ValueError("the request names no model: set the header serve_multiplexed_model_id, or the option")
        if model_id in self._models:
            self._models.move_to_end(model_id)
        return model_id in self._models

    def _surplus(self) -> list[Any]:
        """Takes out those that make room for one more."""
        count = 0 if self._most == UNLIMITED else len(self._models) - self._most + 1
        return [self._models.popitem(last=False)[1] for _ in range(count)]


def _end(model: Any) -> Any:
    """Tells a model that makes room, if it has something to end."""
    end = getattr(model, "close", None) or getattr(model, "__del__", None)
    return None if end is None else end()
