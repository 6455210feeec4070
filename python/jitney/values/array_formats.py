"""Arrays, tensors and frames from the wire and back: npy, npz, JSON, CSV and Parquet.

Files are opened by `jitney.files`. The libraries are those that the user's own hints have loaded.
"""

from __future__ import annotations

import io
import sys
import typing
from collections.abc import Iterator
from typing import Any

from jitney.files.arrays import NPY, ZIP, read_npy
from jitney.files.limits import limits
from jitney.files.tables import check_cells, read_frame
from jitney.values.containers import container_for, container_of
from jitney.values.rows import Rows

NPY_TYPE = "application/x-npy"
DIMENSIONS_MAX = 64
"""Lists inside lists; numpy takes no more."""


def read(value: Any, hint: Any) -> Any:
    """A value as the array, tensor or frame that a hint names."""
    origin = typing.get_origin(hint) or hint
    if container_of(value) is not None and isinstance(value, origin):
        return value
    if origin.__module__.startswith("pandas"):
        return _frame(value, origin)
    if origin.__module__.startswith("torch"):
        return _tensor(value, origin)
    return _array(value, dtype_of(hint))


def is_npz(value: Any) -> bool:
    """Whether these bytes are a dictionary of arrays."""
    return isinstance(value, (bytes, bytearray)) and bytes(value[:4]) == ZIP


def takes_arrays(hint: Any) -> bool:
    """Whether a value of this hint is an array, tensor or frame, or has some in it."""
    kind = typing.get_origin(hint) or hint
    if kind is not Rows and container_for(kind) is not None:
        return True
    return any(map(takes_arrays, typing.get_args(hint)))


def write_npy(value: Any) -> bytes:
    """An array or tensor as npy."""
    buffer = io.BytesIO()
    _numpy().save(buffer, to_numpy(value), allow_pickle=False)
    return buffer.getvalue()


def to_numpy(value: Any) -> Any:
    """A tensor's numbers as an array."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def to_plain(value: Any) -> Any:
    """A value that JSON knows, for what it does not know by itself."""
    container = container_of(value)
    if container is None:
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            return value.item()
        raise TypeError(f"{type(value).__name__} has no JSON form")
    if container.name == "pandas":
        return value.to_dict(orient="records") if hasattr(value, "columns") else value.tolist()
    return value.tolist()


def _numpy() -> Any:
    import numpy  # Only reached when arrays are on the wire.

    return numpy


def dtype_of(hint: Any) -> Any:
    """The dtype of `NDArray[float32]`, if the hint has one."""
    for arg in typing.get_args(hint)[1:]:
        scalar = typing.get_args(arg)[:1]
        if scalar and isinstance(scalar[0], type):
            return scalar[0]
    return None


def _array(value: Any, dtype: Any) -> Any:
    numpy = _numpy()
    if isinstance(value, (bytes, bytearray)):
        value = read_npy(value) if bytes(value[:6]) == NPY else _loads(value)
    if dtype is None and isinstance(value, (list, tuple)):
        _check_texts(value)
    array = numpy.asarray(value, dtype=dtype)
    if array.dtype.hasobject:
        raise ValueError("its rows differ in length or contain values that are not numbers")
    return array


def _check_texts(values: Any) -> None:
    """An array has room for its longest text in every element: one text and many short ones would fill the memory."""
    rows = list(_rows(values, 0))
    longest = max((length for _, length in rows), default=0)
    limits.check_expansion(4 * longest * sum(count for count, _ in rows), 0)


def _rows(values: Any, depth: int) -> Iterator[tuple[int, int]]:
    """The number of values in each innermost list, and the length of its longest text."""
    kinds = set(map(type, values))
    if kinds.isdisjoint((list, tuple)):
        texts = () if kinds.isdisjoint((str, bytes)) else (one for one in values if isinstance(one, (str, bytes)))
        yield len(values), max(map(len, texts), default=0)
    elif depth < DIMENSIONS_MAX:
        for one in values:
            if isinstance(one, (list, tuple)):
                yield from _rows(one, depth + 1)


def _loads(value: bytes | bytearray) -> Any:
    import json

    try:
        return json.loads(bytes(value))
    except ValueError:
        raise ValueError("send JSON numbers or an npy file (application/x-npy)") from None


def _tensor(value: Any, origin: type) -> Any:
    torch = sys.modules["torch"]
    if isinstance(value, (bytes, bytearray)):
        value = read_npy(value) if bytes(value[:6]) == NPY else _loads(value)
    if container_of(value) is not None:
        return torch.from_numpy(value)
    return torch.tensor(value)


def _frame(value: Any, origin: Any) -> Any:
    if isinstance(value, (bytes, bytearray)) and bytes(value[:1]) in (b"[", b"{"):
        value = _loads(value)
    elif isinstance(value, (str, bytes, bytearray)):
        value = read_frame(value)
    if origin.__name__ == "Series" and hasattr(value, "columns"):
        return value.iloc[:, 0]
    if isinstance(value, dict) and not any(isinstance(column, (list, dict)) for column in value.values()):
        value = [value]
    check_cells(value)
    return origin(value)
