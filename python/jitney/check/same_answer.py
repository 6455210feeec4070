"""Whether two answers of a model are the same. Batched arithmetic sums in another order; wrong rows differ by more."""

from __future__ import annotations

import math
from typing import Any

from jitney.http.response import Response
from jitney.values.containers import container_of

RELATIVE, ABSOLUTE = 1e-3, 1e-5


def same(one: Any, other: Any) -> bool:
    """Whether both are the same answer."""
    if container_of(one) is not None or container_of(other) is not None:
        return _same_arrays(one, other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return _same_numbers(one, other)
    if isinstance(one, Response) and isinstance(other, Response):
        return one.status == other.status and same(one.body, other.body)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, BaseException) and isinstance(other, BaseException):
        return type(one) is type(other) and str(one) == str(other)
    return bool(one == other)


def _same_numbers(one: float, other: float) -> bool:
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _same_arrays(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or tuple(one.shape) != tuple(other.shape):
        return False
    return same(_plain(one), _plain(other))


def _plain(value: Any) -> Any:
    return value.to_numpy().tolist() if hasattr(value, "to_numpy") else value.tolist()
