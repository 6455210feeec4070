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
from pathlib import Path
from typing import Any, Union

from jitney.call.errors import BadInput, FieldErrors
from jitney.files.images import TooManyPixels, open_image
from jitney.values import array_formats
from jitney.values.containers import container_for
from jitney.values.rows import AnyRows, Rows, rows_or_array

UNIONS = (Union, getattr(types, "UnionType", Union))
Converter = Callable[[Any], Any]
EXACT = (int, float, str)
"""Types whose own values no converter changes."""
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


class Mismatch(Exception):
    """The value does not fit; the text names what would."""

    def __init__(self, message: str = "", errors: FieldErrors = ()) -> None:
        super().__init__(message)
        self.errors = errors
        """The places inside of the value that do not fit."""


UNFIT = (Mismatch, ValueError, TypeError, KeyError, OverflowError)
SENTENCE_FIELDS_MAX = 10
"""So many wrong fields are named in the sentence; the list beside it has more."""


def convert(name: str, value: Any, hint: Any) -> Any:
    """The value for a parameter, or `BadInput` that names it."""
    try:
        return converter_for(hint)(value)
    except UNFIT as error:
        link = ":" if isinstance(error, Mismatch) else f" cannot be read as {name_of(hint)}:"
        listed = [(_below(name, place), why) for place, why in _errors_of(error)]
        raise BadInput(f"parameter {name!r}{link} {_sentence(error)}", errors=listed) from None


def _sentence(error: Exception) -> str:
    """What is wrong in one sentence; where there are several errors, each field with its own."""
    if not getattr(error, "errors", ()):
        return str(error)
    listed = _errors_of(error)
    shown = [f"{place or 'the value'}: {why}" for place, why in listed[:SENTENCE_FIELDS_MAX]]
    more = len(listed) - len(shown)
    return "; ".join(shown + [f"and {more} more"] * bool(more))


def _errors_of(error: Exception) -> list[tuple[str, str]]:
    """The places in a value that do not fit, and why; the value itself has the empty place."""
    listed: Any = getattr(error, "errors", ())
    if callable(listed):  # pydantic's
        return [(".".join(map(str, one["loc"])), one["msg"]) for one in listed()]
    return list(listed) or [("", str(error) if isinstance(error, Mismatch) else f"cannot be read: {error}")]


def _below(name: Any, place: str) -> str:
    return f"{name}.{place}" if place else str(name)


def _unfit(parts: Iterable[tuple[Any, Converter, Any]]) -> Mismatch:
    """What is wrong with the parts of a value, each by its name or position."""
    errors: list[tuple[str, str]] = []
    for name, reader, value in parts:
        try:
            reader(value)
        except UNFIT as error:
            errors += [(_below(name, place), why) for place, why in _errors_of(error)]
    return Mismatch(errors=errors)


def name_of(hint: Any) -> str:
    """A hint as users write it."""
    return getattr(hint, "__name__", None) or str(hint).replace("typing.", "")


def converter_for(hint: Any) -> Converter:
    """What reads values for a hint. What only the hint decides is decided here, once."""
    if hint is Any or hint is None or isinstance(hint, (str, typing.TypeVar)):
        return _untyped
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Rows or hint is Rows:
        one = converter_for(args[0] if args else Any)
        return lambda value: Rows(map(one, _sequence(value)))
    if hint is AnyRows:
        return lambda value: rows_or_array(_untyped(value))
    if container_for(origin or hint) is not None:
        return lambda value: array_formats.read(value, hint)
    if origin in UNIONS:
        return lambda value: _one_of(value, args)
    if origin is not None:
        return _generic(origin, args)
    if isinstance(hint, type):
        return _READERS.get(hint) or (lambda value: _typed(value, hint))
    return _untyped


def _untyped(value: Any) -> Any:
    """Without a hint values pass as they came."""
    return bytes(value) if isinstance(value, bytearray) else value


def _typed(value: Any, hint: type) -> Any:
    if issubclass(hint, enum.Enum):
        return _enum(value, hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass(value, hint)
    if hasattr(hint, "model_validate"):  # pydantic, which checks better than we do
        return hint.model_validate(_json(value))
    if _is_image(hint):
        return _image(value)
    return _untyped(value)


def _plain(kind: type, accepted: tuple[type, ...], what: str) -> Converter:
    """Reads whole numbers, numbers or text; text is read as the hint requires."""

    accepted = (str, *accepted)

    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        value = _text_or(value)
        if not isinstance(value, accepted) or isinstance(value, bool):
            raise Mismatch(f"expected {what}, got {_kind(value)}")
        return kind(value)

    return read


def _boolean(value: Any) -> bool:
    value = _text_or(value)
    if isinstance(value, str) and value.lower() in TRUE + FALSE:
        return value.lower() in TRUE
    if not isinstance(value, bool):
        raise Mismatch(f"expected true or false, got {_kind(value)}")
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


_READERS: dict[type, Converter] = {
    int: _plain(int, (int,), "a whole number"),
    float: _plain(float, (int, float), "a number"),
    bool: _boolean,
    str: _plain(str, (), "text"),
    bytes: _bytes,
    bytearray: lambda value: bytearray(_bytes(value)),
    io.BytesIO: lambda value: io.BytesIO(_bytes(value)),
    dict: _mapping,
    list: _sequence,
    tuple: lambda value: tuple(_sequence(value)),
    Path: lambda value: value if isinstance(value, Path) else Path(_READERS[str](value)),
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
            return converter_for(hint)(value)
        except (Mismatch, ValueError, TypeError) as error:
            reasons.append(_sentence(error))
    raise Mismatch("; ".join(reasons) or "expected null")


def _generic(origin: Any, args: tuple[Any, ...]) -> Converter:
    if origin is typing.Literal:
        return lambda value: _literal(value, args)
    if origin is typing.Annotated:
        return converter_for(args[0])
    if origin is dict and len(args) == 2:
        one = converter_for(args[1])
        return lambda value: _named(_mapping(value), lambda _: one)
    if origin is tuple and args and args[-1] is not Ellipsis:
        return lambda value: _tuple(value, [converter_for(arg) for arg in args])
    if isinstance(origin, type) and issubclass(origin, Iterable) and args:
        one, made = converter_for(args[0]), origin if origin in (set, frozenset, tuple) else list
        if made is list and args[0] in EXACT:
            return lambda value: _list_of(_sequence(value), {args[0]}, one)
        if made is list and args[0] in (bytes, bytearray, io.BytesIO):
            return lambda value: list(map(one, _files(value)))
        return lambda value: made(_each(_sequence(value), one))
    return _untyped


def _each(values: list[Any], one: Converter) -> list[Any]:
    """The values, converted; what does not fit is named by its position."""
    try:
        return list(map(one, values))
    except UNFIT:
        raise _unfit((at, one, value) for at, value in enumerate(values)) from None


def _named(values: dict[str, Any], reader_of: Callable[[str], Converter]) -> dict[str, Any]:
    """The values of an object, converted; what does not fit is named by its name."""
    try:
        return {name: reader_of(name)(value) for name, value in values.items()}
    except UNFIT:
        raise _unfit((name, reader_of(name), value) for name, value in values.items()) from None


def _files(value: Any) -> Any:
    """A list of files; a single one is a list, too, unless it is JSON's."""
    if isinstance(value, (bytes, bytearray, memoryview)) and bytes(value[:1]) != b"[":
        return [value]
    try:
        return _sequence(value)
    except Mismatch:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return [value]
        raise


def _list_of(values: list[Any], exact: set[type], one: Converter) -> list[Any]:
    """The values, converted unless all are of the type already: token ids and features are many."""
    return values if set(map(type, values)) <= exact else _each(values, one)


def _tuple(value: Any, converters: list[Converter]) -> tuple[Any, ...]:
    values = _sequence(value)
    if len(values) != len(converters):
        raise Mismatch(f"expected a list of {len(converters)}, got one of {len(values)}")
    return tuple(one(inside) for one, inside in zip(converters, values))


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
    fields = [field for field in dataclasses.fields(hint) if field.init]
    known = {field.name for field in fields}
    missing = [field.name for field in fields if has_no_default(field) and field.name not in value]
    errors = [(name, "is missing") for name in missing]
    takes = f"it has: {', '.join(sorted(known))}"
    errors += [(name, f"{hint.__name__} has no field {name!r}; {takes}") for name in sorted(value.keys() - known)]
    if errors:
        raise Mismatch(errors=errors)
    return hint(**_named(value, lambda name: converter_for(hints.get(name, Any))))


def has_no_default(field: dataclasses.Field[Any]) -> bool:
    """Whether an object cannot be made without this field."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


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
