"""`bentoml.Runnable`: a class whose methods a runner calls in workers of its own, many rows at a time."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from jitney.definition.hints import MISSING
from jitney.values.rows import AnyRows

F = TypeVar("F", bound=Callable[..., Any])

NOTE = "__bentoml_runnable_method__"
OTHERS = "others"


@dataclass(frozen=True)
class RunnableMethod:
    """What `Runnable.method` says about a method."""

    batchable: bool = False
    batch_dim: int | tuple[int, int] = 0


class Runnable:
    """What a runner runs; subclass it, and load the model in `__init__`."""

    SUPPORTED_RESOURCES: tuple[str, ...] = ("cpu",)
    SUPPORTS_CPU_MULTI_THREADING = False

    @staticmethod
    def method(
        func: Any = None,
        *,
        batchable: bool = False,
        batch_dim: int | tuple[int, int] = 0,
        input_spec: Any = None,
        output_spec: Any = None,
    ) -> Any:
        """Makes a method of a runnable callable by its runner. A batchable one gets the rows of many callers at once:
        arrays, tensors and frames joined along `batch_dim`, everything else in a list."""

        def attach(function: F) -> F:
            setattr(function, NOTE, RunnableMethod(batchable, batch_dim))
            return function

        return attach if func is None else attach(func)

    @classmethod
    def add_method(
        cls, method: Callable[..., Any], name: str, *, batchable: bool = False, batch_dim: int | tuple[int, int] = 0,
        input_spec: Any = None, output_spec: Any = None,
    ) -> None:  # fmt: skip
        """The same for a function that is added to the class later."""
        setattr(method, NOTE, RunnableMethod(batchable, batch_dim))
        setattr(cls, name, method)


def methods_of(runnable: type) -> dict[str, RunnableMethod]:
    """The methods that a runner can call, by name."""
    names = {name: None for one in reversed(runnable.__mro__) for name in vars(one)}
    noted = ((name, getattr(inspect.getattr_static(runnable, name, None), NOTE, None)) for name in names)
    return {name: note for name, note in noted if isinstance(note, RunnableMethod)}


def endpoint_function(runnable: type, name: str, batchable: bool) -> Callable[..., Any]:
    """The function of the endpoint for a method."""
    method = inspect.getattr_static(runnable, name)
    bare = inspect.unwrap(method)
    own = list(inspect.signature(bare).parameters.values())[1:]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in own)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [one for one in own if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    signature = [
        inspect.Parameter("self", kind),
        *(inspect.Parameter(one.name, kind, default=one.default) for one in named),
    ]
    if takes_any:
        signature.append(inspect.Parameter(OTHERS, inspect.Parameter.VAR_KEYWORD))

    def call(self: Any, **given: Any) -> Any:
        others = {key: _as_array(value) for key, value in given.items()} if takes_any and batchable else given
        return getattr(self.made, name)(**others)

    async def call_async(self: Any, **given: Any) -> Any:
        others = {key: _as_array(value) for key, value in given.items()} if takes_any and batchable else given
        return await getattr(self.made, name)(**others)

    def stream(self: Any, **given: Any) -> Any:
        yield from getattr(self.made, name)(**given)

    async def stream_async(self: Any, **given: Any) -> Any:
        async for piece in getattr(self.made, name)(**given):
            yield piece

    made: Any = call
    if inspect.isasyncgenfunction(bare):
        made = stream_async
    elif inspect.isgeneratorfunction(bare):
        made = stream
    elif inspect.iscoroutinefunction(bare):
        made = call_async
    made.__signature__ = inspect.Signature(signature)
    names = {one.name for one in named} | ({OTHERS} if takes_any else set())
    made.__annotations__ = dict.fromkeys(names, AnyRows if batchable else Any)
    return made  # type: ignore[no-any-return]


def positions_of(runnable: type, name: str) -> list[str]:
    """The names of a method's parameters that can be given by position."""
    parameters = list(inspect.signature(inspect.unwrap(inspect.getattr_static(runnable, name))).parameters.values())[1:]
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _as_array(value: Any) -> Any:
    """Numbers that came as lists, as JSON has them, for `**batch` parameters: a tensor where torch is loaded, an array
    where numpy is. What is not numbers stays."""
    if not isinstance(value, list) or not _is_numbers(value):
        return value
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    try:
        if torch is not None:
            return torch.tensor(value)
        return numpy.asarray(value) if numpy is not None else value
    except ValueError:  # Rows of different lengths.
        return value


def _is_numbers(value: Any) -> bool:
    while isinstance(value, list):
        if not value:
            return False
        value = value[0]
    return isinstance(value, (int, float)) and value is not MISSING
