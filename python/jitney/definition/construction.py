"""Makes the object behind a definition, with something in the place of each part that it calls.

In a worker these are handles, in a unit test parts of the same process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.application import (
    BEING_MADE,
    Bound,
    Dependency,
    arguments_of,
    bound_of,
    class_dependencies,
    dependencies,
)
from jitney.definition.definition import Definition

Resolve = Callable[[str], Any]
"""What stands for the dependency of a slot."""


def make(definition: Definition, resolve: Resolve | None = None) -> Any:
    """The object behind a definition. Without `resolve` nothing stands for its parts."""
    bound = bound_of(definition)
    target = definition.target
    if not bound.args and not bound.kwargs and not _calls_others(bound):
        return target() if isinstance(target, type) else target
    slots = {slot: _stand_in(resolve, slot, one) for slot, one in dependencies(bound)}
    if not isinstance(target, type):
        _wire(target, slots)
        return target
    attributes = class_dependencies(target)
    args, kwargs = _arguments(bound, target, slots)
    token = BEING_MADE.set({slot: slots[slot] for slot in attributes})
    try:
        made = target(*args, **kwargs)
    finally:
        BEING_MADE.reset(token)
    _wire(made, {slot: slots[slot] for slot in attributes})
    return made


def _calls_others(bound: Bound) -> bool:
    return next(dependencies(bound), None) is not None


def _stand_in(resolve: Resolve | None, slot: str, one: Any) -> Any:
    return resolve(slot) if resolve is not None else _Absent(slot, one)


def _wire(made: Any, slots: Mapping[str, Any]) -> None:
    """Keeps what stands for a class's dependencies in the object, where looking it up costs nothing."""
    try:
        vars(made).update(slots)
    except TypeError:
        if slots:
            name = type(made).__name__
            raise DefinitionError(f"{name} has __slots__ and depends on others; add '__dict__' to them") from None


def _arguments(bound: Bound, target: type, slots: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the constructor: as they were given, and dependencies that are defaults by name."""
    named = {name: _filled(name, value, slots) for name, value in arguments_of(bound)}
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        at = range(len(bound.args))
        return tuple(named.pop(str(one)) for one in at), named
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = True
    for name, parameter in parameters.items():
        if name not in named:
            by_position = False
        elif parameter.kind is parameter.VAR_POSITIONAL:
            args += named[name]
        elif parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update(named[name])
        elif by_position and parameter.kind is not parameter.KEYWORD_ONLY:
            args.append(named[name])
        else:
            kwargs[name] = named[name]
    return tuple(args), kwargs


def _filled(slot: str, value: Any, slots: Mapping[str, Any]) -> Any:
    """An argument with what stands for the dependencies in it."""
    if isinstance(value, (Dependency, Bound)):
        return slots[slot]
    if isinstance(value, dict):
        return {key: _filled(f"{slot}[{key!r}]", one, slots) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        filled = [_filled(f"{slot}[{at}]", one, slots) for at, one in enumerate(value)]
        if isinstance(value, list):
            return filled
        return type(value)(*filled) if hasattr(value, "_fields") else tuple(filled)
    return value


class _Absent:
    """Stands for a part where nothing serves it."""

    def __init__(self, slot: str, one: Any) -> None:
        self._slot = slot
        self._one = one

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            f"{self._slot} is {self._one!r}, a part of an application, and nothing serves it here: start it with "
            "`jitney serve` or jitney.run, or load it in a test with jitney.testing.load"
        )
