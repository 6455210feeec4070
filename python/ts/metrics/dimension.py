"""A dimension: the name and value that tell series of one metric apart."""

from __future__ import annotations

from typing import Any


class Dimension:
    """A name and a value."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"

    def to_dict(self) -> dict[str, Any]:
        """The dimension as a dictionary."""
        return {"Name": self.name, "Value": self.value}
