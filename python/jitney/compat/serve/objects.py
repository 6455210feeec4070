"""Objects of plain classes as arguments of calls by handle: they travel as their attributes.

A parameter whose type hint names the class gets an object of it again. Nothing is unpickled, and no message names the
class that is made: what can be made is what the method's own hints say.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

from jitney.definition.hints import LISTS
from jitney.values.convert import UNIONS

MARK = "jitney.compat.serve: an object of"


def packed(value: Any) -> Any:
    """A value with dictionaries in the place of objects."""
    if isinstance(value, dict):
        return {key: packed(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(packed, value))
    if is_plain(type(value)):
        return {MARK: type(value).__qualname__, "attributes": packed(vars(value))}
    return value


def is_plain(kind: Any) -> bool:
    """Whether objects of a class are their attributes and nothing else, and no other rule sends them."""
    if not isinstance(kind, type) or not kind.__dictoffset__ or dataclasses.is_dataclass(kind):
        return False
    return all(getattr(kind, name, None) is getattr(object, name, None) for name in OWN_WAYS)


OWN_WAYS = ("__new__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
"""How a class can be made or copied in a way of its own."""


def plain_classes(function: Callable[..., Any]) -> dict[str, type]:
    """The plain classes that a function's hints name, by parameter: as such, or as what a list or a union has."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # A name that cannot be found counts for nothing.
        return {}
    found = {}
    for name, hint in hints.items():
        inside = typing.get_args(hint) if typing.get_origin(hint) in (*UNIONS, *LISTS) else (hint,)
        kinds = [one for one in inside if one is not type(None) and is_plain(one)]
        if len(kinds) == 1:
            found[name] = kinds[0]
    return found


def unpacked(name: str, value: Any, kind: type | None) -> Any:
    """A value with objects again; of a class that the parameter's hint names."""
    if isinstance(value, list):
        return [unpacked(name, one, kind) for one in value]
    if not isinstance(value, dict) or MARK not in value:
        return value
    if kind is None or value[MARK] != kind.__qualname__:
        raise TypeError(
            f"parameter {name!r} gets an object of {value[MARK]}: say so in its type hint, or send its parts"
        )
    made: Any = object.__new__(kind)
    vars(made).update({str(key): unpacked(name, one, None) for key, one in value["attributes"].items()})
    return made
