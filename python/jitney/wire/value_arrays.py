"""numpy arrays, torch tensors and pandas frames inside values: their buffers, as they lie in memory.

Apart from `values` because only these need a library. A caller's program imports it when an answer needs it; a
worker does not, since its callers would decide what it loads. Arrays of Python objects are errors: their buffers
are pointers.
"""

from __future__ import annotations

import importlib
import math
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from jitney.files.tables import check_columns

DIMS_MAX = 32
TORCH_ONLY = {"bfloat16": "<u2"}
"""Types of tensors that numpy has no name for, with the numbers in which they travel."""


class _Imports(threading.local):
    """Whether this thread may import a library for the value that it reads."""

    allowed = True


IMPORTS = _Imports()


class ArrayFormatError(ValueError):
    """The bytes are no array, or the library for it is missing."""


def put_array(value: Any) -> tuple[bytes, bytes]:
    """Tag and bytes of a numpy array."""
    return b"a", _array_bytes(value, value.dtype.str)


def put_tensor(value: Any) -> tuple[bytes, bytes]:
    """Tag and bytes of a torch tensor; it arrives on the CPU."""
    torch = sys.modules["torch"]
    tensor = value.detach().cpu().contiguous()
    name = str(tensor.dtype).rpartition(".")[2]
    if name in TORCH_ONLY:
        return b"x", _array_bytes(tensor.view(torch.int16).numpy(), name)
    array = tensor.numpy()
    return b"x", _array_bytes(array, array.dtype.str)


def put_frame(value: Any) -> tuple[bytes, Any]:
    """Tag and parts of a pandas frame or series: columns by name, and the index unless it only counts."""
    pandas = sys.modules["pandas"]
    frame = value.to_frame("") if hasattr(value, "to_frame") and value.ndim == 1 else value
    columns = [(name, _column(frame.iloc[:, at])) for at, name in enumerate(frame.columns)]
    index = None if isinstance(frame.index, pandas.RangeIndex) else list(frame.index)
    name = getattr(value, "name", None) if value.ndim == 1 else None
    return b"p", ("series" if value.ndim == 1 else "frame", columns, index, name)


WRITERS: dict[str, Callable[[Any], tuple[bytes, Any]]] = {
    "numpy": put_array,
    "torch": put_tensor,
    "pandas": put_frame,
}


def _column(series: Any) -> Any:
    plain = getattr(series.dtype, "kind", "O") in "biufc" and hasattr(series.dtype, "str")
    return series.to_numpy() if plain else series.tolist()


def _array_bytes(array: Any, name: str) -> bytes:
    if array.dtype.hasobject or array.dtype.kind == "V":
        raise TypeError(f"an array of dtype {array.dtype} cannot be sent; make it numbers or text, or send a list")
    if array.ndim > DIMS_MAX:
        raise TypeError(f"an array may have {DIMS_MAX} dimensions")
    raw = name.encode()
    head = struct.pack(f"<B{len(raw)}sB{array.ndim}Q", len(raw), raw, array.ndim, *array.shape)
    data: bytes = array.tobytes()
    return head + data


def take_array(view: bytes | memoryview, at: int) -> tuple[Any, int]:
    """A numpy array of its own, and where it ends."""
    name, shape, data, end = _head(view, at)
    return _read(name, shape, data), end


def take_tensor(view: bytes | memoryview, at: int) -> tuple[Any, int]:
    """A torch tensor of its own, and where it ends."""
    torch = _library("torch")
    name, shape, data, end = _head(view, at)
    if name in TORCH_ONLY:
        array = _read("<i2", shape, data)
        return torch.from_numpy(array).view(getattr(torch, name)), end
    return torch.from_numpy(_read(name, shape, data)), end


def frame(parts: Any) -> Any:
    """The frame or series of its parts."""
    pandas = _library("pandas")
    try:
        kind, columns, index, name = parts
        check_columns(len(columns))
        if any(isinstance(column, dict) for _, column in columns):
            raise ArrayFormatError("no frame: a column is a list or an array")
        made = pandas.DataFrame(dict(enumerate(column for _, column in columns)), index=index)
        made.columns = pandas.Index([label for label, _ in columns])
        if kind == "frame":
            return made
        series = made.iloc[:, 0]
        series.name = name
        return series
    except (TypeError, ValueError, IndexError) as error:
        raise ArrayFormatError(f"no frame: {error}") from None


def _head(view: bytes | memoryview, at: int) -> tuple[str, tuple[int, ...], bytes | memoryview, int]:
    """Type, shape and bytes; how many bytes follows from the first two."""
    name_len = view[at]
    name = str(view[at + 1 : at + 1 + name_len], "ascii")
    at += 1 + name_len
    dims = view[at]
    if dims > DIMS_MAX:
        raise ArrayFormatError(f"an array may have {DIMS_MAX} dimensions")
    shape = struct.unpack_from(f"<{dims}Q", view, at + 1)
    at += 1 + 8 * dims
    end = at + math.prod(shape) * _item_size(name)
    if end > len(view):
        raise ArrayFormatError("the array is cut short")
    return name, shape, view[at:end], end


def _item_size(name: str) -> int:
    return int(_dtype(TORCH_ONLY.get(name, name)).itemsize)


def _dtype(name: str) -> Any:
    numpy = _library("numpy")
    try:
        dtype = numpy.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        raise ArrayFormatError(f"there is no dtype {name!r}") from None
    if dtype.hasobject or dtype.kind == "V" or not dtype.itemsize:
        raise ArrayFormatError(f"arrays of dtype {name!r} are not read")
    return dtype


def _read(name: str, shape: tuple[int, ...], data: bytes | memoryview) -> Any:
    try:
        return _library("numpy").frombuffer(data, _dtype(name)).reshape(shape).copy()
    except ValueError as error:
        raise ArrayFormatError(f"no array of shape {shape}: {error}") from None


def _library(name: str) -> Any:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    if not IMPORTS.allowed:
        raise ArrayFormatError(f"the value needs {name}, which this model does not import; send plain lists instead")
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ArrayFormatError(f"the value needs {name}, which is not installed here") from None
