"""A list whose elements are rows of work, and a row with several values of one name.

A batch function that takes `list[str]` gets one text of each caller. One that takes `Rows[str]` gets the texts of all
callers in one list, as arrays are joined, however many each of them sent; its answer is cut by the same numbers.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class Rows(list[T]):
    """What one caller sent: a list that is joined with those of others."""


class AnyRows:
    """The hint of a parameter that takes rows of any kind: arrays as they are, and lists as `Rows`."""


def rows_or_array(value: Any) -> Any:
    """What `AnyRows` makes of a value."""
    return Rows(value) if isinstance(value, (list, tuple)) else value


class RepeatedRow(dict[str, Any]):
    """The last value of every name, as handlers expect it, and all values of those that came several times: fields of a
    query, files of a form."""

    def __init__(self) -> None:
        super().__init__()
        self.every: dict[str, list[Any]] = {}

    def add(self, name: str, value: Any) -> None:
        """One more value."""
        if name in self:
            self.every.setdefault(name, [self[name]]).append(value)
        self[name] = value
