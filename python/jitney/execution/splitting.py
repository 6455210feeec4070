"""Splits what a batch function returned by item.

The length is checked first: no item gets an output of an answer that does not have exactly one
output per item (or row).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from jitney.call.errors import NotAnAnswer, WrongLength
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
    columns = {key: split(value, count, sizes, dim, plain) for key, value in result.items()}
    return [{key: column[item] for key, column in columns.items()} for item in range(count)]


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = list(accumulate(sizes))
    return [(end - size, end) for end, size in zip(ends, sizes)]


def _check(got: int, wanted: int, what: str, of: str) -> None:
    if got != wanted:
        raise WrongLength(f"the function returned {got} {what} for {wanted} {of}")
