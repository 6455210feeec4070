"""Joining values of several items into one and splitting the answer again, by type.

numpy arrays, torch tensors, pandas frames and `Rows` have a container; anything else has none and
travels in a list. The libraries are looked up among the loaded modules and never imported: a
value of a type whose library is not loaded cannot exist.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import Any

from jitney.values.rows import AnyRows, Rows

KNOWN_TYPES_LIMIT = 1024


class Container:
    """How values of one type are joined and cut; `dim` is the batch dimension."""

    name = ""

    def rows(self, value: Any, dim: int) -> int:
        """How many rows of work a value brings."""
        shape = value.shape
        if not -len(shape) <= dim < len(shape):
            raise ValueError(f"a value of shape {tuple(shape)} has no dimension {dim} to batch along")
        return int(shape[dim])

    def signature(self, value: Any, dim: int) -> Hashable:
        """Values with equal signatures can be joined without changing any of them."""
        raise NotImplementedError

    def join(self, values: Sequence[Any], dim: int) -> Any:
        """One value with the rows of all, in order."""
        raise NotImplementedError

    def cut(self, value: Any, start: int, end: int, dim: int) -> Any:
        """The rows from `start` to `end`."""
        raise NotImplementedError

    def take(self, value: Any, row: int, dim: int) -> Any:
        """One row, without the batch dimension."""
        raise NotImplementedError


class Arrays(Container):
    """numpy.ndarray."""

    name = "numpy"

    def signature(self, value: Any, dim: int) -> Hashable:
        """The dtype and all dimensions but one; rows are joined without a cast."""
        return self.name, str(value.dtype), _other_dims(value.shape, dim)

    def join(self, values: Sequence[Any], dim: int) -> Any:
        return values[0] if len(values) == 1 else sys.modules["numpy"].concatenate(values, axis=dim)

    def cut(self, value: Any, start: int, end: int, dim: int) -> Any:
        return value[_at(value.ndim, dim, slice(start, end))]

    def take(self, value: Any, row: int, dim: int) -> Any:
        return value[_at(value.ndim, dim, row)]


class Tensors(Arrays):
    """torch.Tensor."""

    name = "torch"

    def signature(self, value: Any, dim: int) -> Hashable:
        return self.name, str(value.dtype), _other_dims(value.shape, dim), str(value.device)

    def join(self, values: Sequence[Any], dim: int) -> Any:
        torch = sys.modules["torch"]
        if len(values) == 1:
            return values[0]
        if not torch.cuda.is_initialized() or values[0].device.type != "cpu":
            return torch.cat(tuple(values), dim=dim)
        shape = list(values[0].shape)
        shape[dim] = sum(one.shape[dim] for one in values)
        # What goes to a GPU goes faster from memory that is kept for that, and nobody waits for it.
        return torch.cat(tuple(values), dim=dim, out=torch.empty(shape, dtype=values[0].dtype, pin_memory=True))


class Frames(Container):
    """pandas.DataFrame and pandas.Series; rows only."""

    name = "pandas"

    def rows(self, value: Any, dim: int) -> int:
        if dim != 0:
            raise ValueError("pandas frames are batched along dimension 0 only")
        return len(value)

    def signature(self, value: Any, dim: int) -> Hashable:
        kind = type(value).__name__
        if kind == "Series":
            return self.name, kind, str(value.name), str(value.dtype)
        return self.name, kind, tuple(map(str, value.columns)), tuple(map(str, value.dtypes))

    def join(self, values: Sequence[Any], dim: int) -> Any:
        if len(values) == 1:
            return values[0]
        return sys.modules["pandas"].concat(values, ignore_index=True)

    def cut(self, value: Any, start: int, end: int, dim: int) -> Any:
        return value.iloc[start:end].reset_index(drop=True)

    def take(self, value: Any, row: int, dim: int) -> Any:
        one = value.iloc[row]
        return one.to_dict() if hasattr(one, "to_dict") else one


class Lists(Container):
    """`Rows`, which are lists."""

    name = "rows"

    def rows(self, value: Any, dim: int) -> int:
        if dim != 0:
            raise ValueError("lists are batched along dimension 0 only")
        return len(value)

    def signature(self, value: Any, dim: int) -> Hashable:
        return self.name

    def join(self, values: Sequence[Any], dim: int) -> Any:
        return [row for value in values for row in value]

    def cut(self, value: Any, start: int, end: int, dim: int) -> Any:
        return list(value[start:end])

    def take(self, value: Any, row: int, dim: int) -> Any:
        return value[row]


_ARRAYS, _TENSORS, _FRAMES, _LISTS = Arrays(), Tensors(), Frames(), Lists()
_KINDS: tuple[tuple[str, str, Container], ...] = (
    ("numpy", "ndarray", _ARRAYS),
    ("torch", "Tensor", _TENSORS),
    ("pandas", "DataFrame", _FRAMES),
    ("pandas", "Series", _FRAMES),
)
_known: dict[type, Container | None] = {Rows: _LISTS, AnyRows: _LISTS}


def container_of(value: Any) -> Container | None:
    """The container of a value, or None if it travels in a list."""
    return container_for(type(value))


def container_for(kind: Any) -> Container | None:
    """The container of the values of a type."""
    try:
        return _known[kind]
    except (KeyError, TypeError):
        pass
    if not isinstance(kind, type):
        return None
    if len(_known) >= KNOWN_TYPES_LIMIT:
        _known.clear()
    container = _known[kind] = _look_up(kind)
    return container


def _look_up(kind: type) -> Container | None:
    if issubclass(kind, (Rows, AnyRows)):
        return _LISTS
    for module, name, container in _KINDS:
        known = getattr(sys.modules.get(module), name, None)
        if isinstance(known, type) and issubclass(kind, known):
            return container
    return None


def _other_dims(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    dims = list(shape)
    del dims[dim]
    return (len(shape), *map(int, dims))


def _at(ndim: int, dim: int, index: Any) -> Any:
    """An index into one dimension of several."""
    dim = range(ndim)[dim]
    return (slice(None),) * dim + (index,)
