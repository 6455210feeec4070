"""Streaming: pieces of answers that are sent before the rest exists.

A single-item generator yields the pieces of its one answer. A batch generator yields a list with
one piece per item and `END` in the place of an item that is complete; an exception in its place
fails that item alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jitney.call.errors import WrongLength
from jitney.execution.grouping import Invocation


class _End:
    """The type of `END`."""

    def __repr__(self) -> str:
        return "jitney.END"


END = _End()
"""In a batch generator's list: this item's answer is complete."""

Emit = Callable[[int, Any], None]
"""Takes an item's position and a piece of its answer."""


class Streamed:
    """The outcome of an item whose pieces were sent already."""


STREAMED = Streamed()


class AnswerStreams:
    """The answers of one invocation while they are being made."""

    def __init__(self, invocation: Invocation, batched: bool, emit: Emit) -> None:
        self._ride = invocation
        self._batched = batched
        self._emit = emit
        self.outcomes: dict[int, Any] = {}
        """Items that are complete."""
        self.begun = False
        """Whether any piece was sent, after which nothing may be retried."""

    @property
    def open(self) -> bool:
        """Whether an item is still incomplete."""
        return len(self.outcomes) < len(self._ride.positions)

    def step(self, pieces: Any) -> None:
        """Passes on what the generator yielded."""
        if not self._batched:
            self._pass_on(self._ride.positions[0], pieces)
            return
        count = len(self._ride.positions)
        if not isinstance(pieces, Sequence) or isinstance(pieces, (str, bytes)):
            raise WrongLength(f"the generator yielded {type(pieces).__name__} for a batch of {count}; yield a list")
        if len(pieces) != count:
            raise WrongLength(f"the generator yielded {len(pieces)} pieces for {count} items")
        for position, piece in zip(self._ride.positions, pieces):
            if position not in self.outcomes:
                self._pass_on(position, piece)

    def _pass_on(self, position: int, piece: Any) -> None:
        if piece is END or isinstance(piece, (StopIteration, StopAsyncIteration)):
            self.outcomes[position] = STREAMED
        elif isinstance(piece, BaseException):
            self.outcomes[position] = piece
        else:
            self._emit(position, piece)
            self.begun = True

    def finish(self, outcome: Any = STREAMED) -> dict[int, Any]:
        """The outcomes of all items; `outcome` is for those that are not complete."""
        return {position: self.outcomes.get(position, outcome) for position in self._ride.positions}
