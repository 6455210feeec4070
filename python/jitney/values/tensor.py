"""Tensors: how a definition declares them, and how they lie on the wire.

Elements are little-endian and row by row; those of BYTES are preceded by their length in four bytes each. An array
shares the memory of the frame that brought it. What needs no array needs no numpy either: nobody's request makes a
worker import it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jitney.call.errors import DefinitionError

BYTES, BF16 = "BYTES", "BF16"
FORMATS = {
    "BOOL": ("?", "?"),
    "UINT8": ("B", "u1"),
    "UINT16": ("H", "<u2"),
    "UINT32": ("I", "<u4"),
    "UINT64": ("Q", "<u8"),
    "INT8": ("b", "i1"),
    "INT16": ("h", "<i2"),
    "INT32": ("i", "<i4"),
    "INT64": ("q", "<i8"),
    "FP16": ("e", "<f2"),
    BF16: ("H", "<u2"),
    "FP32": ("f", "<f4"),
    "FP64": ("d", "<f8"),
    BYTES: ("", "O"),
}
"""The format of one element by datatype: for `struct`, and for numpy, which has no name for BF16."""
DIMS_MAX = 32


@dataclass(frozen=True)
class Tensor:
    """An input or output: its datatype as the Open Inference Protocol names it, and its shape with the batch
    dimension, -1 wherever any size will do."""

    datatype: str
    shape: Sequence[int]

    def __post_init__(self) -> None:
        if self.datatype not in FORMATS:
            raise DefinitionError(f"there is no datatype {self.datatype!r}; there are: {', '.join(FORMATS)}")
        shape = self.shape
        if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
            raise DefinitionError(f"a shape is a list of sizes, not {shape!r}")
        object.__setattr__(self, "shape", tuple(shape))
        if len(self.shape) > DIMS_MAX or not all(type(size) is int and size >= -1 for size in self.shape):
            raise DefinitionError(f"a shape has at most {DIMS_MAX} sizes, each -1 or more, not {list(self.shape)!r}")


class BrokenTensor(ValueError):
    """The data does not fill the shape."""


class RawTensor:
    """A tensor as it lies on the wire."""

    __slots__ = ("data", "datatype", "shape")

    def __init__(self, datatype: str, shape: Sequence[int], data: Any) -> None:
        self.datatype = datatype
        self.shape = tuple(shape)
        self.data = data
        width = width_of(datatype)
        if width and math.prod(self.shape) * width != len(data):
            raise BrokenTensor(f"{self} has {math.prod(self.shape) * width} bytes, not {len(data)}")

    def __str__(self) -> str:
        return f"{self.datatype} of shape {list(self.shape)}"

    def elements(self) -> list[Any]:
        """All elements one after the other: numbers, or bytes."""
        if self.datatype == BYTES:
            return self._strings()
        count = math.prod(self.shape)
        numbers = struct.unpack(f"<{count}{FORMATS[self.datatype][0]}", self.data)
        if self.datatype == BF16:
            return list(struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *(one << 16 for one in numbers))))
        return list(numbers)

    def nested(self) -> Any:
        """Lists in lists, as the shape says."""
        return nest(self.elements(), self.shape)

    def array(self) -> Any:
        """A numpy array in the same memory. Strings are objects of their own, and BF16 becomes single precision."""
        import numpy

        if self.datatype == BYTES:
            objects: Any = numpy.empty(math.prod(self.shape), dtype=object)
            objects[:] = self._strings()
            return objects.reshape(self.shape)
        dtype = numpy.dtype(FORMATS[self.datatype][1])
        array = numpy.frombuffer(self.data, dtype)
        if not array.flags.aligned:  # Behind a tensor of narrower elements; some libraries crash on it.
            array = array.copy()
        if self.datatype == BF16:
            array = (array.astype("<u4") << 16).view("<f4")
        return array.reshape(self.shape)

    def torch_tensor(self) -> Any:
        """A torch tensor in the same memory."""
        import torch

        if self.datatype != BF16:
            return torch.from_numpy(self.array())
        halves = RawTensor("INT16", self.shape, self.data)
        return torch.from_numpy(halves.array()).view(torch.bfloat16)

    def _strings(self) -> list[bytes]:
        data, at, found = memoryview(self.data), 0, []
        try:
            while at < len(data):
                (length,) = struct.unpack_from("<I", data, at)
                at += 4 + length
                found.append(bytes(data[at - length : at]))
        except struct.error:
            at = -1
        if at != len(data) or len(found) != math.prod(self.shape):
            raise BrokenTensor(f"the strings do not fill {self}")
        return found


def width_of(datatype: str) -> int:
    """Bytes of one element; 0 where each has its own length."""
    return struct.calcsize("<" + FORMATS[datatype][0])


def nest(elements: list[Any], shape: Sequence[int]) -> Any:
    """Elements as lists in lists."""
    if not shape:
        return elements[0]
    if len(shape) == 1:
        return elements
    size = math.prod(shape[1:])
    return [nest(elements[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]
