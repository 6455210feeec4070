"""A gate in the file system: holds a handler inside a batch until the test opens it.

It takes the place of sleeps: the test knows that the worker is busy because the handler says so, and
the worker goes on when the test says so.
"""

from __future__ import annotations

from pathlib import Path

from harness.wait import until


class Gate:
    """Two files: the handler makes one when it arrives and waits for the other."""

    def __init__(self, directory: Path, name: str = "gate") -> None:
        self.arrived = directory / f"{name}-arrived"
        self.opened = directory / f"{name}-opened"

    @property
    def order(self) -> dict[str, list[str]]:
        """What a request to the `orders` handler says to be held here."""
        return {"gate": [str(self.arrived), str(self.opened)]}

    def wait(self) -> None:
        """Until a handler stands at the gate."""
        until(self.arrived.exists, f"a handler arrives at {self.arrived.name}")

    def open(self) -> None:
        """Lets it through."""
        self.opened.touch()
