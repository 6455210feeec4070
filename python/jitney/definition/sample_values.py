"""Values made up from type hints, as clients send them in JSON: a dataclass or a pydantic model is an object."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import io
import sys
import typing
from typing import Any

from jitney.definition.hints import LISTS, MAPPINGS
from jitney.values.convert import UNIONS

DEPTH_MAX = 8


class Unknown(LookupError):
    """Nobody can know what a value of this type is."""


def value_of(hint: Any, seed: int, depth: int = 0) -> Any:
    """A value of a type, as JSON has it."""
    if depth > DEPTH_MAX:
        raise Unknown(hint)
    plain = {
        int: seed,
        float: seed + 0.5,
        str: f"example {seed}",
        bool: seed % 2 == 0,
        dict: {"example": seed},
        list: [seed, seed + 1],
        bytes: f"example {seed}".encode(),
        bytearray: f"example {seed}".encode(),
        io.BytesIO: f"example {seed}".encode(),
        type(None): None,
        datetime.date: f"2024-05-0{1 + seed % 9}",
        datetime.datetime: f"2024-05-0{1 + seed % 9}T12:00:00",
    }
    if isinstance(hint, type) and hint in plain:
        return plain[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is not None:
        return _generic(hint, origin, args, seed, depth)
    if inspect.isclass(hint):
        return _object(hint, seed, depth)
    raise Unknown(hint)


def _generic(hint: Any, origin: Any, args: tuple[Any, ...], seed: int, depth: int) -> Any:
    def one(arg: Any, more: int = 0) -> Any:
        return value_of(arg, seed + more, depth + 1)

    if origin in UNIONS:
        return one(next((arg for arg in args if arg is not type(None)), type(None)))
    if origin is typing.Annotated:
        return one(args[0])
    if origin is typing.Literal:
        return args[seed % len(args)]
    if origin is tuple and args and args[-1] is not Ellipsis:
        return [one(arg) for arg in args]
    if origin in (*LISTS, set, frozenset, tuple) and args:
        return [one(args[0]), one(args[0], 1)]
    if origin in MAPPINGS and len(args) == 2:
        return {"example": one(args[1])}
    raise Unknown(hint)


def _object(hint: type, seed: int, depth: int) -> Any:
    if issubclass(hint, enum.Enum):
        members = list(hint)
        return members[seed % len(members)].value
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        needed = [one.name for one in dataclasses.fields(hint) if one.init and _has_no_default(one)]
        return {name: value_of(hints[name], seed, depth + 1) for name in needed}
    fields = getattr(hint, "model_fields", None)
    if isinstance(fields, dict):
        required = {name: one for name, one in fields.items() if one.is_required()}
        return {one.alias or name: _field(one, seed, depth + 1) for name, one in required.items()}
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image is not None and issubclass(hint, image):
        return _picture(seed)
    raise Unknown(hint)


def _field(field: Any, seed: int, depth: int) -> Any:
    """A value of a pydantic field: one of its examples, or one within its bounds."""
    if field.examples:
        return field.examples[seed % len(field.examples)]
    value = value_of(field.annotation, seed, depth)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _within(value, _limit(field, "ge", "gt"), _limit(field, "le", "lt"))
    most = _limit(field, "max_length")
    return value[:most] if isinstance(value, (str, list)) else value


def _limit(field: Any, *names: str) -> Any:
    found = (getattr(one, name, None) for one in field.metadata for name in names)
    return next((one for one in found if one is not None), None)


def _within(value: Any, low: Any, high: Any) -> Any:
    """A number between two bounds, where there are any; never a bound itself if there is room."""
    if low is not None and value <= low:
        value = low + 1 if high is None or low + 1 < high else (low + high) / 2
    if high is not None and value >= high:
        value = high - 1 if low is None or high - 1 > low else (low + high) / 2
    return value


def _picture(seed: int) -> bytes:
    image: Any = sys.modules["PIL.Image"]
    written = io.BytesIO()
    image.new("RGB", (32, 32), (seed * 40 % 256, 80, 120)).save(written, "PNG")
    return written.getvalue()


def _has_no_default(field: Any) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
