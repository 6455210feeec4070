"""Python values as bytes, for handles: small, self-describing, and safe to read from any sender.

protocol/handles.md has the format. Nothing is unpickled and no code is named, so the worst a
hostile value can do is to be rejected. Values of other types (dataclasses, enums, dates, paths,
pydantic models) travel as what they hold; type hints make them whole again on the other side.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import struct
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from jitney.values.containers import container_for
from jitney.wire import value_arrays

Raw = bytes | bytearray | memoryview
Bytes = bytes | memoryview
Put = Callable[[Any], None]

DEPTH_MAX = 64
"""Values inside values; deeper ones are errors on both sides."""
INT_BYTES_MAX = 4096

NONE, TRUE, FALSE, INT, LONG, FLOAT = b"N", b"T", b"F", b"i", b"I", b"f"
TEXT, BYTES, LIST, TUPLE, DICT = b"s", b"b", b"l", b"t", b"d"
ARRAY, TENSOR, FRAME = b"a", b"x", b"p"

_pack_int = struct.Struct("<cq").pack
_pack_float = struct.Struct("<cd").pack
_pack_size = struct.Struct("<cI").pack
_read_int = struct.Struct("<q").unpack_from
_read_float = struct.Struct("<d").unpack_from
_read_size = struct.Struct("<I").unpack_from


class ValueFormatError(ValueError):
    """The bytes are no value, or the value cannot be sent; the message tells what to do."""


def encode(value: Any) -> bytes:
    """A value as bytes."""
    parts: list[Any] = []
    _put(value, parts.append, 0)
    return b"".join(parts)


_PUT_ONE = _pack_size(TUPLE, 1)


def encode_one(value: Any) -> bytes:
    """A tuple of one value as bytes: nearly every call has one argument."""
    parts: list[Any] = [_PUT_ONE]
    _WRITERS.get(type(value), _put_other)(value, parts.append, 1)
    return b"".join(parts)


def decode(raw: Raw, imports: bool = True) -> Any:
    """The value that bytes stand for; all of them. Without `imports` its libraries must be loaded already."""
    view = raw if type(raw) is bytes else memoryview(raw)
    value_arrays.IMPORTS.allowed = imports
    try:
        reader = _READERS.get(view[0])
        value, end = _take(view, 0, 0) if reader is None else reader(view, 1, 0)
    except (struct.error, IndexError):
        raise ValueFormatError("the value is cut short") from None
    except UnicodeDecodeError as error:
        raise ValueFormatError(f"text that is not UTF-8: {error.reason}") from None
    except value_arrays.ArrayFormatError as error:
        raise ValueFormatError(str(error)) from None
    if end != len(view):
        raise ValueFormatError("bytes are left over after the value")
    return value


def _put(value: Any, put: Put, depth: int) -> None:
    _WRITERS.get(type(value), _put_other)(value, put, depth)


def _put_int(value: int, put: Put, depth: int) -> None:
    if -(1 << 63) <= value < 1 << 63:
        put(_pack_int(INT, value))
        return
    size = value.bit_length() // 8 + 1
    if size > INT_BYTES_MAX:
        raise ValueFormatError(f"a whole number of {size} bytes is too large to send")
    put(_pack_size(LONG, size))
    put(value.to_bytes(size, "little", signed=True))


def _put_text(value: str, put: Put, depth: int) -> None:
    raw = value.encode("utf-8", "surrogatepass")
    put(_pack_size(TEXT, len(raw)))
    put(raw)


def _put_bytes(value: Raw, put: Put, depth: int) -> None:
    raw = value.tobytes() if isinstance(value, memoryview) else value
    put(_pack_size(BYTES, len(raw)))
    put(raw)


def _put_items(tag: bytes, values: Any, put: Put, depth: int) -> None:
    put(_pack_size(tag, len(values)))
    depth = _deeper(depth)
    for value in values:
        _put(value, put, depth)


def _put_dict(value: dict[Any, Any], put: Put, depth: int) -> None:
    put(_pack_size(DICT, len(value)))
    depth = _deeper(depth)
    for key, one in value.items():
        _put(key, put, depth)
        _put(one, put, depth)


def _deeper(depth: int) -> int:
    if depth >= DEPTH_MAX:
        raise ValueFormatError(f"values inside values go at most {DEPTH_MAX} deep")
    return depth + 1


_WRITERS: dict[type, Callable[[Any, Put, int], None]] = {
    type(None): lambda value, put, depth: put(NONE),
    bool: lambda value, put, depth: put(TRUE if value else FALSE),
    int: _put_int,
    float: lambda value, put, depth: put(_pack_float(FLOAT, value)),
    str: _put_text,
    bytes: _put_bytes,
    bytearray: _put_bytes,
    memoryview: _put_bytes,
    list: lambda value, put, depth: _put_items(LIST, value, put, depth),
    tuple: lambda value, put, depth: _put_items(TUPLE, value, put, depth),
    dict: _put_dict,
}


def _put_other(value: Any, put: Put, depth: int) -> None:
    """Arrays and frames by their buffers, the rest as what they hold."""
    container = container_for(type(value))
    if container is not None:
        try:
            tag, body = value_arrays.WRITERS[container.name](value)
        except TypeError as error:
            raise ValueFormatError(str(error)) from None
        put(tag)
        if isinstance(body, (bytes, bytearray)):
            put(body)
        else:
            _put(body, put, _deeper(depth))
        return
    for kind, writer in _WRITERS.items():
        if isinstance(value, kind) and not isinstance(value, enum.Enum):
            writer(value, put, depth)
            return
    _put(_plain(value), put, _deeper(depth))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    name = type(value).__name__
    raise ValueFormatError(f"{name} cannot be sent through a handle; send numbers, text, bytes, lists, dicts or arrays")


def _take(view: Bytes, at: int, depth: int) -> tuple[Any, int]:
    tag = view[at]
    at += 1
    reader = _READERS.get(tag)
    if reader is None:
        raise ValueFormatError(f"there is no value of kind {bytes((tag,))!r}")
    return reader(view, at, depth)


def _cut(view: Bytes, at: int) -> tuple[Bytes, int]:
    """A length, and that many bytes."""
    (size,) = _read_size(view, at)
    end = at + 4 + size
    if end > len(view):
        raise ValueFormatError("the value is cut short")
    return view[at + 4 : end], end


def _take_long(view: Bytes, at: int, depth: int) -> tuple[int, int]:
    raw, end = _cut(view, at)
    if len(raw) > INT_BYTES_MAX:
        raise ValueFormatError("a whole number is too large")
    return int.from_bytes(raw, "little", signed=True), end


def _take_text(view: Bytes, at: int, depth: int) -> tuple[str, int]:
    raw, end = _cut(view, at)
    return str(raw, "utf-8", "surrogatepass"), end


def _take_bytes(view: Bytes, at: int, depth: int) -> tuple[bytes, int]:
    raw, end = _cut(view, at)
    return bytes(raw), end


def _take_list(view: Bytes, at: int, depth: int) -> tuple[list[Any], int]:
    (count,) = _read_size(view, at)
    depth = _deeper(depth)
    at += 4
    values = []
    for _ in range(count):  # The bytes run out before a lie about the count costs anything.
        value, at = _take(view, at, depth)
        values.append(value)
    return values, at


def _take_tuple(view: Bytes, at: int, depth: int) -> tuple[tuple[Any, ...], int]:
    values, at = _take_list(view, at, depth)
    return tuple(values), at


def _take_dict(view: Bytes, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    (count,) = _read_size(view, at)
    depth = _deeper(depth)
    at += 4
    values = {}
    for _ in range(count):
        key, at = _take(view, at, depth)
        value, at = _take(view, at, depth)
        try:
            values[key] = value
        except TypeError:
            raise ValueFormatError(f"{type(key).__name__} cannot be a key") from None
    return values, at


def _take_frame(view: Bytes, at: int, depth: int) -> tuple[Any, int]:
    parts, at = _take(view, at, _deeper(depth))
    return value_arrays.frame(parts), at


_READERS: dict[int, Callable[[Bytes, int, int], tuple[Any, int]]] = {
    NONE[0]: lambda view, at, depth: (None, at),
    TRUE[0]: lambda view, at, depth: (True, at),
    FALSE[0]: lambda view, at, depth: (False, at),
    INT[0]: lambda view, at, depth: (_read_int(view, at)[0], at + 8),
    LONG[0]: _take_long,
    FLOAT[0]: lambda view, at, depth: (_read_float(view, at)[0], at + 8),
    TEXT[0]: _take_text,
    BYTES[0]: _take_bytes,
    LIST[0]: _take_list,
    TUPLE[0]: _take_tuple,
    DICT[0]: _take_dict,
    ARRAY[0]: lambda view, at, depth: value_arrays.take_array(view, at),
    TENSOR[0]: lambda view, at, depth: value_arrays.take_tensor(view, at),
    FRAME[0]: _take_frame,
}
