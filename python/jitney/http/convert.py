"""One value from the wire as its parameter's type hint wants it.

Text (queries, form fields, text bodies, JSON strings) is read as the hint requires; other JSON values
keep their types. What does not fit is `BadInput` with the reason; a hint this file does not know
lets the value pass as it came.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Union

from jitney.containers import container_for
from jitney.errors import BadInput
from jitney.http import tensors
from jitney.images import TooManyPixels, open_image

UNIONS = (Union, getattr(types, "UnionType", Union))
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


class Mismatch(Exception):
    """The value does not fit; the text names what would."""


def convert(name: str, value: Any, hint: Any) -> Any:
    """The value for a parameter, or `BadInput` that names it."""
    try:
        return _convert(value, hint)
    except Mismatch as error:
        raise BadInput(f"parameter {name!r}: {error}") from None
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BadInput(f"parameter {name!r} cannot be read as {name_of(hint)}: {error}") from None


def name_of(hint: Any) -> str:
    """A hint as users write it."""
    return getattr(hint, "__name__", None) or str(hint).replace("typing.", "")


def _convert(value: Any, hint: Any) -> Any:
    if hint is Any or hint is None or isinstance(hint, (str, typing.TypeVar)):
        return _untyped(value)
    origin = typing.get_origin(hint)
    if container_for(origin or hint) is not None:
        return tensors.read(value, hint)
    if origin in UNIONS:
        return _one_of(value, typing.get_args(hint))
    if origin is not None:
        return _generic(value, hint, origin, typing.get_args(hint))
    if isinstance(hint, type):
        return _typed(value, hint)
    return _untyped(value)


def _untyped(value: Any) -> Any:
    """Without a hint values pass as they came."""
    return bytes(value) if isinstance(value, bytearray) else value


def _typed(value: Any, hint: type) -> Any:
    reader = _READERS.get(hint)
    if reader is not None:
        return reader(value)
    if issubclass(hint, enum.Enum):
        return _enum(value, hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass(value, hint)
    if hasattr(hint, "model_validate"):  # pydantic, which checks better than we do
        return hint.model_validate(_json(value))
    if _is_image(hint):
        return _image(value)
    return _untyped(value)


def _integer(value: Any) -> int:
    value = _text_or(value)
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Mismatch(f"expected a whole number, got {_kind(value)}")
    return value


def _number(value: Any) -> float:
    value = _text_or(value)
    if isinstance(value, str):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Mismatch(f"expected a number, got {_kind(value)}")
    return float(value)


def _boolean(value: Any) -> bool:
    value = _text_or(value)
    if isinstance(value, str) and value.lower() in TRUE + FALSE:
        return value.lower() in TRUE
    if not isinstance(value, bool):
        raise Mismatch(f"expected true or false, got {_kind(value)}")
    return value


def _string(value: Any) -> str:
    value = _text_or(value)
    if not isinstance(value, str):
        raise Mismatch(f"expected text, got {_kind(value)}")
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    raise Mismatch(f"expected bytes: send the body as application/octet-stream or a file; got {_kind(value)}")


def _mapping(value: Any) -> Any:
    value = _json(value)
    if not isinstance(value, dict):
        raise Mismatch(f"expected an object, got {_kind(value)}")
    return value


def _sequence(value: Any) -> Any:
    value = _json(value)
    if isinstance(value, tuple):  # Python callers have them.
        return list(value)
    if not isinstance(value, list):
        raise Mismatch(f"expected a list, got {_kind(value)}")
    return value


_READERS: dict[type, Callable[[Any], Any]] = {
    int: _integer,
    float: _number,
    bool: _boolean,
    str: _string,
    bytes: _bytes,
    bytearray: lambda value: bytearray(_bytes(value)),
    io.BytesIO: lambda value: io.BytesIO(_bytes(value)),
    dict: _mapping,
    list: _sequence,
    tuple: lambda value: tuple(_sequence(value)),
}


def _text_or(value: Any) -> Any:
    """Bytes as text, everything else as it is."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise Mismatch("expected text, got bytes that are not UTF-8") from None


def _json(value: Any) -> Any:
    value = _text_or(value)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise Mismatch(f"expected JSON: {error}") from None


def _one_of(value: Any, hints: tuple[Any, ...]) -> Any:
    if value is None and type(None) in hints:
        return None
    reasons = []
    for hint in hints:
        if hint is type(None):
            continue
        try:
            return _convert(value, hint)
        except (Mismatch, ValueError, TypeError) as error:
            reasons.append(str(error))
    raise Mismatch("; ".join(reasons) or "expected null")


def _generic(value: Any, hint: Any, origin: Any, args: tuple[Any, ...]) -> Any:
    if origin is typing.Literal:
        return _literal(value, args)
    if origin is dict:
        return {key: _convert(one, args[1]) for key, one in _mapping(value).items()}
    if origin is tuple and args and args[-1] is not Ellipsis:
        values = _sequence(value)
        if len(values) != len(args):
            raise Mismatch(f"expected a list of {len(args)}, got one of {len(values)}")
        return tuple(_convert(one, arg) for one, arg in zip(values, args))
    if origin is typing.Annotated:
        return _convert(value, args[0])
    if isinstance(origin, type) and issubclass(origin, Iterable) and args:
        values = [_convert(one, args[0]) for one in _sequence(value)]
        return origin(values) if origin in (set, frozenset, tuple) else values
    return _untyped(value)


def _literal(value: Any, choices: tuple[Any, ...]) -> Any:
    value = _text_or(value)
    for choice in choices:
        if value == choice or value == str(choice):
            return choice
    raise Mismatch(f"expected one of {', '.join(map(repr, choices))}, got {value!r}")


def _enum(value: Any, hint: type[enum.Enum]) -> Any:
    value = _text_or(value)
    for member in hint:
        if value in (member.value, member.name) or str(member.value) == value:
            return member
    raise Mismatch(f"expected one of {', '.join(repr(member.value) for member in hint)}, got {value!r}")


def _dataclass(value: Any, hint: Any) -> Any:
    value = _mapping(value)
    hints = typing.get_type_hints(hint)
    known = {field.name for field in dataclasses.fields(hint) if field.init}
    unknown = sorted(value.keys() - known)
    if unknown:
        raise Mismatch(f"{hint.__name__} has no field {unknown[0]!r}; it has: {', '.join(sorted(known))}")
    return hint(**{name: _convert(one, hints.get(name, Any)) for name, one in value.items()})


def _is_image(hint: type) -> bool:
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return image is not None and issubclass(hint, image)


def _image(value: Any) -> Any:
    try:
        return open_image(_bytes(value))
    except TooManyPixels as error:
        raise Mismatch(f"the image is too large: {error}") from None


def _kind(value: Any) -> str:
    """A value's type, for a message to the client."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value)) or ("bytes" if isinstance(value, (bytes, bytearray)) else repr(value)[:60])
