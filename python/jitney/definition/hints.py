"""Type hints of a function, read once: which parameters it has, what one item of each is, and
what one item's answer is. Hints that cannot be read count as absent.
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.call.request import Request
from jitney.values.containers import container_for
from jitney.values.tensor import Tensor

LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
MAPPINGS = (dict, collections.abc.Mapping)
STREAMS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
MISSING = inspect.Parameter.empty


@dataclass(frozen=True)
class Param:
    """One parameter of an endpoint."""

    name: str
    hint: Any
    """The type of one item's value; `Any` without a hint."""
    default: Any
    is_request: bool = False
    """Filled in with the item's `Request`."""
    is_list: bool = False
    """The hint is a list."""

    @property
    def required(self) -> bool:
        """Whether a call must bring it."""
        return self.default is MISSING and not self.is_request


@dataclass(frozen=True)
class FunctionShape:
    """What a function takes and gives."""

    params: tuple[Param, ...]
    takes_any: bool
    """It has `**kwargs`, so every name is welcome."""
    any_hint: Any
    """The type of one item's value of a name that it does not list; MISSING without a hint."""
    output: Any
    """What one item's answer, or one piece of a stream, is."""
    gives_columns: bool = False
    """A batch function that returns a dictionary of columns."""
    gives_scalar: bool = False
    """A batch function whose hint says that it returns a single value."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """The tensors that its hints declare with `Annotated`, by parameter; its answer's under `return`."""


def read(function: Callable[..., Any], batched: bool, streams: bool, skip_self: bool) -> FunctionShape:
    """Reads a function's signature."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"{function!r} has no readable signature: {error}") from None
    hints = _hints(function)
    named = [_param(parameter, hints, batched) for parameter in _plain(function, parameters[skip_self:])]
    rest = next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)
    any_hint = hints.get(rest, MISSING) if rest is not None else MISSING
    any_hint = _inside(any_hint, LISTS, 0) if batched else any_hint
    output = hints.get("return", Any)
    if streams:
        output = _inside(output, STREAMS, 0)
    columns = batched and _strip(output) in MAPPINGS
    scalar = batched and not streams and output in (int, float, str, bool, bytes)
    output = _inside(output, LISTS, 0) if batched else output
    return FunctionShape(tuple(named), rest is not None, any_hint, output, columns, scalar, _declared(function))


def _plain(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Parameters that can be given by name; others have no name a request could use."""
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise DefinitionError(f"{function.__qualname__}: parameter {parameter.name!r} must be callable by name")
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise DefinitionError(f"{function.__qualname__}: *{parameter.name} has no names to call it by")
    return [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]


def _param(parameter: inspect.Parameter, hints: dict[str, Any], batched: bool) -> Param:
    hint = hints.get(parameter.name, Any)
    is_list = batched and _strip(hint) in LISTS
    if batched:
        hint = _inside(hint, LISTS, 0)
    is_request = isinstance(hint, type) and issubclass(hint, Request)
    return Param(parameter.name, hint, parameter.default, is_request, is_list)


def _declared(function: Callable[..., Any]) -> dict[str, Tensor]:
    """The tensors that hints declare with `Annotated`."""
    try:
        hints = typing.get_type_hints(_routine(function), include_extras=True)
    except Exception:
        hints = _readable(inspect.unwrap(_routine(function)))
    found = ((name, one) for name, hint in hints.items() for one in getattr(hint, "__metadata__", ()))
    return {name: one for name, one in found if isinstance(one, Tensor)}


def _routine(function: Callable[..., Any]) -> Any:
    return function if inspect.isroutine(function) else type(function).__call__


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = _routine(function)
    try:
        return typing.get_type_hints(target)
    except Exception:
        return _readable(inspect.unwrap(target))


def _readable(function: Any) -> dict[str, Any]:
    """Those hints that can be read one by one."""
    known: dict[str, Any] = {}
    names = getattr(function, "__globals__", {})
    for name, hint in getattr(function, "__annotations__", {}).items():
        try:
            known[name] = eval(hint, names) if isinstance(hint, str) else hint
        except Exception:
            continue
    return known


def _strip(hint: Any) -> Any:
    """`list[int]` without its brackets."""
    return typing.get_origin(hint) or hint


def _inside(hint: Any, wrappers: tuple[Any, ...], at: int) -> Any:
    """The element of a list or stream; other hints, arrays among them, stay."""
    if _strip(hint) not in wrappers or container_for(_strip(hint)) is not None:
        return hint
    args = typing.get_args(hint)
    return args[at] if args else Any
