"""The value of a row, by TorchServe's rule: the field `data`, else `body`."""

from __future__ import annotations

import json
from typing import Any


def value_of(row: Any) -> Any:
    """A row's value; what is no row is its own value."""
    if not isinstance(row, dict):
        return row
    value = row.get("data")
    return row.get("body") if value is None else value


def numbers_of(data: Any) -> Any:
    """Rows as nested lists of numbers; bytes and text are read as JSON."""
    if not isinstance(data, (list, tuple)):
        return data
    values = [value_of(row) for row in data]
    return [json.loads(value) if isinstance(value, (str, bytes, bytearray)) else value for value in values]


def text_of(row: Any) -> str:
    """A row's value as text."""
    value = value_of(row)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8")
    return "" if value is None else str(value)
