"""JSON with two spaces of plain values, as the standard library writes it and in half the time.

Most of what models answer are dictionaries and lists of numbers and texts. For these the library's writer in C cannot
be used, because it knows no indentation, and its writer in Python makes a generator for every level. Whatever is not
plain (other types, subclasses, NaN, deep nesting) is left to the library, which decides what becomes of it.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote
from typing import Any

DEPTH_MAX = 16

_float, _int = float.__repr__, int.__repr__


class Unusual(Exception):
    """The value is not plain."""


def plain_json(value: Any) -> str:
    """A value as `json.dumps(value, indent=2)` writes it; raises `Unusual` if it is not plain."""
    return _write(value, "\n", DEPTH_MAX)


def _write(value: Any, newline: str, depth: int) -> str:
    kind = type(value)
    if kind is dict:
        return _write_dict(value, newline, depth)
    if kind is list or kind is tuple:
        return _write_list(value, newline, depth)
    if kind is str:
        return quote(value)
    if kind is float and value - value == 0.0:
        return _float(value)
    if kind is int:
        return _int(value)
    if value is None or kind is bool:
        return "null" if value is None else "true" if value else "false"
    raise Unusual


def _write_dict(value: dict[Any, Any], newline: str, depth: int) -> str:
    if not value:
        return "{}"
    if not depth:
        raise Unusual
    inner = newline + "  "
    texts = []
    for key, item in value.items():
        if type(key) is not str:
            raise Unusual
        if type(item) is float and item - item == 0.0:  # NaN and infinities are not plain.
            texts.append(f"{quote(key)}: {_float(item)}")
        else:
            texts.append(f"{quote(key)}: {_write(item, inner, depth - 1)}")
    return f"{{{inner}{(',' + inner).join(texts)}{newline}}}"


def _write_list(value: list[Any] | tuple[Any, ...], newline: str, depth: int) -> str:
    if not value:
        return "[]"
    if not depth:
        raise Unusual
    inner = newline + "  "
    texts = [
        _float(item) if type(item) is float and item - item == 0.0 else _write(item, inner, depth - 1) for item in value
    ]
    return f"[{inner}{(',' + inner).join(texts)}{newline}]"
