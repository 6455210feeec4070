"""Splits what a batch function returned by item.

The length is checked first: no item gets an output of an answer that does not have exactly one
output per item (or row).

Streams are pieces of answers that are sent before the rest exists. A single-item generator yields the pieces of its
one answer. A batch generator yields a list with one piece per item and `END` in the place of an item that is complete;
an exception in its place fails that item alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from jitney.call.errors import NotAnAnswer, WrongLength
from jitney.execution.grouping import Invocation
from jitney.http.float_fields import FloatFields
from jitney.values.containers import Container, container_of

PLAIN_MAX = 1 << 20
"""Elements of an array that are made plain in one piece."""


def split(result: Any, count: int, sizes: Sequence[int] | None, dim: int, plain: bool = False) -> list[Any]:
    """One output per item. `sizes` are the rows per item where arrays were joined, None where
    every item was one element of a list. With `plain` arrays become lists, as JSON has them, which costs less for all
    rows together than for each."""
    if isinstance(result, dict):
        return _split_dict(result, count, sizes, dim, plain)
    container = container_of(result)
    if container is not None:
        return _split_container(container, result, count, sizes, dim, plain)
    if isinstance(result, (list, tuple)):
        return _split_list(result, count, sizes)
    raise NotAnAnswer(
        f"the function returned {type(result).__name__} for a batch of {count}; "
        "return a list with one output per item, or an array with one row per row of input"
    )


def _split_list(result: Sequence[Any], count: int, sizes: Sequence[int] | None) -> list[Any]:
    if sizes is None:
        _check(len(result), count, "outputs", "items")
        return list(result)
    _check(len(result), sum(sizes), "outputs", "rows")
    return [_part(result[start:end]) for start, end in _bounds(sizes)]


def _part(outputs: Sequence[Any]) -> Any:
    """The outputs of one item's rows; an error among them is the item's."""
    for output in outputs:
        if isinstance(output, BaseException):
            return output
    return list(outputs)


def _split_container(
    container: Container, result: Any, count: int, sizes: Sequence[int] | None, dim: int, plain: bool
) -> list[Any]:
    try:
        rows = container.rows(result, dim)
    except ValueError as error:
        raise NotAnAnswer(f"the function's answer cannot be split: {error}") from None
    plain = plain and dim == 0 and container.name != "pandas" and math.prod(result.shape) <= PLAIN_MAX
    if sizes is None:
        _check(rows, count, "rows", "items")
        if plain:
            return list(result.tolist())
        return [container.take(result, row, dim) for row in range(count)]
    _check(rows, sum(sizes), "rows", "rows")
    if plain:
        values = result.tolist()
        return [values[start:end] for start, end in _bounds(sizes)]
    return [container.cut(result, start, end, dim) for start, end in _bounds(sizes)]


def _split_dict(result: dict[Any, Any], count: int, sizes: Sequence[int] | None, dim: int, plain: bool) -> list[Any]:
    if not result:
        raise NotAnAnswer("the function returned an empty dictionary")
    fields = type(result) is FloatFields  # Whose arrays stay as they are.
    columns = {key: split(value, count, sizes, dim, plain and not fields) for key, value in result.items()}
    rows = ({key: column[item] for key, column in columns.items()} for item in range(count))
    return list(map(FloatFields, rows) if fields else rows)


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = list(accumulate(sizes))
    return [(end - size, end) for end, size in zip(ends, sizes)]


def _check(got: int, wanted: int, what: str, of: str) -> None:
    if got != wanted:
        raise WrongLength(f"the function returned {got} {what} for {wanted} {of}")


class _End:
    """The type of `END`."""

    def __repr__(self) -> str:
        return "jitney.END"


END = _End()
"""In a batch generator's list: this item's answer is complete."""

Emit = Callable[[int, Any], "bool | None"]
"""Takes an item's position and a piece of its answer. True if its client has left: then it gets no more."""


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
        elif self._emit(position, piece):
            self.outcomes[position] = STREAMED
        else:
            self.begun = True

    def finish(self, outcome: Any = STREAMED) -> dict[int, Any]:
        """The outcomes of all items; `outcome` is for those that are not complete."""
        return {position: self.outcomes.get(position, outcome) for position in self._ride.positions}
