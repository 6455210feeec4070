"""A request with several values of one name: files of a form, fields of a query."""

from __future__ import annotations

from typing import Any


class RepeatedRow(dict[str, Any]):
    """The last value of every name, as handlers expect it, and all values of those that came several times."""

    def __init__(self) -> None:
        super().__init__()
        self.every: dict[str, list[Any]] = {}

    def add(self, name: str, value: Any) -> None:
        """One more value."""
        if name in self:
            self.every.setdefault(name, [self[name]]).append(value)
        self[name] = value
