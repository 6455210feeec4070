"""Triton's element types beside numpy's and the Open Inference Protocol's."""

from __future__ import annotations

from typing import Any

from jitney.values.tensor import BF16, BYTES, FORMATS

NUMBERS = {
    "BOOL": 1,
    "UINT8": 2,
    "UINT16": 3,
    "UINT32": 4,
    "UINT64": 5,
    "INT8": 6,
    "INT16": 7,
    "INT32": 8,
    "INT64": 9,
    "FP16": 10,
    "FP32": 11,
    "FP64": 12,
    BYTES: 13,
    BF16: 14,
}
"""The numbers of the configuration's types, by datatype."""
DATATYPES = {number: name for name, number in NUMBERS.items()}


def numpy_type(datatype: str) -> Any:
    """numpy's type of a datatype; numbers of BF16 are held in single precision."""
    import numpy

    if datatype == BYTES:
        return numpy.object_
    return numpy.dtype("<f4" if datatype == BF16 else FORMATS[datatype][1]).type


def from_config(name: str) -> str:
    """The datatype of a configuration's `TYPE_FP32`."""
    datatype = name.removeprefix("TYPE_")
    return BYTES if datatype == "STRING" else datatype


def of_array(array: Any) -> str:
    """The datatype of an array."""
    import numpy

    if array.dtype.kind in "OSU":
        return BYTES
    for datatype, (_, code) in FORMATS.items():
        if datatype not in (BF16, BYTES) and numpy.dtype(code) == array.dtype:
            return datatype
    raise ValueError(f"an array of {array.dtype} has no type in Triton")
