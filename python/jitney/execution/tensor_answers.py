"""From what a function returned to named tensors.

Arrays are sent from where they lie, as long as their rows lie one after the other; numbers and texts, and lists of
them, become tensors of their own kind; anything else becomes BYTES, one JSON text per element. What a definition
declares decides names and datatypes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from jitney.call.errors import BadInput, Error
from jitney.definition.signature import OUTPUT, Signature
from jitney.http.response import encode_json
from jitney.values.containers import container_of
from jitney.values.tensor import BF16, BYTES, FORMATS, RawTensor

DATATYPES = {dtype.lstrip("<"): name for name, (_, dtype) in FORMATS.items() if name not in (BF16, BYTES)}
"""Datatypes by numpy's names."""
LISTS = (list, tuple)


def named(one: Signature, columns: bool, value: Any, many: bool, asked: Sequence[str]) -> list[tuple[str, RawTensor]]:
    """The outputs of a request: those that it asks for, or all. `many` says that the value is a list with one answer
    per element of the request."""
    values = _by_name(one, columns, value, many)
    unknown = [name for name in asked if name not in values]
    if unknown:
        raise BadInput(f"there is no output {unknown[0]!r}; there are: {', '.join(values)}")
    tells = one.declares_outputs or (many and not value)  # Of no answers only the hints know what they are.
    told = {name: tensor.datatype for name, tensor in one.outputs.items() if tells}
    return [(name, _write(name, values[name], told.get(name), many)) for name in asked or tuple(values)]


def _by_name(one: Signature, columns: bool, value: Any, many: bool) -> Mapping[str, Any]:
    declared = one.outputs if one.declares_outputs else {}
    rows = value if many else [value]
    are_dicts = bool(rows) and all(isinstance(row, dict) for row in rows)
    first = rows[0] if are_dicts else {}
    if are_dicts and declared and declared.keys() <= first.keys():
        keys: Sequence[Any] = tuple(declared)
    elif are_dicts and not declared and first and (columns or _has_arrays(first)):
        keys = tuple(first)
    elif len(declared) > 1 or columns:
        missing = ", ".join(repr(name) for name in declared if name not in first)
        raise Error(f"the answer must be a dictionary with the outputs; it has no {missing or 'names'}")
    elif not many and hasattr(value, "columns") and container_of(value) is not None:
        return {str(name): value[name] for name in value.columns}
    else:
        return {next(iter(declared), OUTPUT): value}
    if any(row.keys() != first.keys() for row in rows):
        raise Error("the answers have different names; tensors need the same ones in each")
    return {str(key): [row[key] for row in rows] if many else value[key] for key in keys}


def _has_arrays(row: Mapping[Any, Any]) -> bool:
    return any(container_of(one) is not None for one in row.values())


def _write(name: str, value: Any, wanted: str | None, many: bool) -> RawTensor:
    try:
        if many and value and all(hasattr(one, "shape") for one in value):
            value = _stacked(value)
        if hasattr(value, "shape"):
            return as_tensor(value, wanted)
        return _plain(value, wanted, many)
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise Error(f"the output {name!r} is no tensor: {error}") from None


def _stacked(values: Sequence[Any]) -> Any:
    first = values[0]
    shapes = {tuple(one.shape) for one in values}
    if len(shapes) > 1:
        raise ValueError(f"the answers differ in shape: {' and '.join(map(str, sorted(shapes)[:2]))}")
    container = container_of(first)
    if container is not None and container.name == "torch":
        import torch

        return torch.stack(tuple(values))
    import numpy

    return numpy.stack(values)


def as_tensor(value: Any, wanted: str | None) -> RawTensor:
    """An array, tensor or series where it lies."""
    import numpy

    if hasattr(value, "detach"):
        value = value.detach().cpu().contiguous()
        if str(value.dtype) == "torch.bfloat16":
            if wanted in (None, BF16):
                import torch

                return RawTensor(BF16, value.shape, _bytes_of(value.view(torch.int16).numpy()))
            value = value.float()
        value = value.numpy()
    array = numpy.asarray(value)
    if array.dtype.kind in "OUS" or wanted == BYTES:
        texts = [_text(one) for one in array.reshape(-1).tolist()]
        return _strings(texts, array.shape)
    if str(array.dtype) == "bfloat16" and wanted in (None, BF16):
        return RawTensor(BF16, array.shape, _bytes_of(numpy.ascontiguousarray(array).view("<u2")))
    if wanted == BF16:
        bits = numpy.ascontiguousarray(array, dtype="<f4").view("<u4")
        return RawTensor(BF16, array.shape, _bytes_of(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")))
    datatype = wanted or DATATYPES.get(array.dtype.str.lstrip("<|=>").replace("b1", "?"))
    if datatype is None:
        raise ValueError(f"an array of {array.dtype} has no datatype in the Open Inference Protocol")
    array = numpy.ascontiguousarray(array, dtype=FORMATS[datatype][1]).reshape(array.shape)
    return RawTensor(datatype, array.shape, _bytes_of(array))


def _bytes_of(array: Any) -> Any:
    """The memory of an array, one byte after the other."""
    return array.reshape(-1).view("u1").data if array.size else b""


def _plain(value: Any, wanted: str | None, many: bool) -> RawTensor:
    """Numbers and texts, alone or in lists."""
    shape: list[int] = []
    leaves: list[Any] = [value]
    while leaves and all(isinstance(one, LISTS) for one in leaves):
        sizes = {len(one) for one in leaves}
        if len(sizes) > 1:
            if wanted == BYTES or not all(_is_plain(one) for row in leaves for one in row):
                break
            raise ValueError(f"its rows differ in length: {' and '.join(map(str, sorted(sizes)[:2]))}")
        shape.append(sizes.pop())
        leaves = [one for row in leaves for one in row]
    if any(hasattr(one, "shape") for one in leaves):
        import numpy

        return as_tensor(numpy.asarray(value), wanted)
    kinds = {type(one) for one in leaves}
    datatype = wanted or _datatype(kinds)
    if datatype == BYTES:
        if not all(issubclass(kind, (str, bytes, bytearray)) for kind in kinds):  # JSON: one text per element.
            shape, leaves = ([len(value)], list(value)) if many else ([1], [value])
        return _strings([_text(one) for one in leaves], shape or [1])
    code = FORMATS[datatype][0]
    if datatype == BF16:
        words = struct.unpack(f"<{len(leaves)}I", struct.pack(f"<{len(leaves)}f", *leaves))
        leaves = [(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words]
    elif code in "efd":
        leaves = [float(one) for one in leaves]
    return RawTensor(datatype, shape or [1], struct.pack(f"<{len(leaves)}{code}", *leaves))


def _datatype(kinds: set[type]) -> str:
    if kinds == {bool}:
        return "BOOL"
    if kinds == {int}:
        return "INT64"
    return "FP64" if kinds and kinds <= {int, float} else BYTES


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, list, tuple))


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else encode_json(value)


def _strings(texts: Sequence[bytes], shape: Sequence[int]) -> RawTensor:
    if math.prod(shape) != len(texts):
        raise ValueError(f"{len(texts)} texts do not fill the shape {list(shape)}")
    parts = (part for text in texts for part in (struct.pack("<I", len(text)), text))
    return RawTensor(BYTES, shape, b"".join(parts))
