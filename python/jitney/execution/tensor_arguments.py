"""From a request's tensors to the items of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jitney.call.errors import BadInput
from jitney.definition.definition import Endpoint
from jitney.definition.hints import MISSING, Param
from jitney.definition.signature import ELEMENTS, array_type, rank_of
from jitney.values.convert import convert, converter_for
from jitney.values.rows import Rows
from jitney.values.tensor import BYTES, FORMATS, BrokenTensor, RawTensor, Tensor

ITEMS_MAX = 1 << 20
"""Items of one request that has no elements; with elements, their bytes are the limit."""
Arguments = dict[str, Any]


class TensorReader:
    """Reads the tensors of requests to one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._params = {param.name: param for param in endpoint.params if not param.is_request}
        self._declared = {one.name: one.tensor for one in endpoint.tensors.inputs if one.declared}

    def read(self, tensors: Mapping[str, RawTensor]) -> tuple[list[Arguments], bool]:
        """The arguments of each item, and whether the answers are to be put together along a first dimension."""
        try:
            if self._endpoint.tensors.frame is not None:
                return [self._frame(tensors)], False
            if self._endpoint.tensors.items == ELEMENTS:
                return self._elements(tensors)
            return [{name: self._whole(name, tensor) for name, tensor in tensors.items()}], False
        except BrokenTensor as error:
            raise BadInput(str(error)) from None

    def _param(self, name: str) -> Param:
        param = self._params.get(name)
        if param is not None:
            return param
        if not self._endpoint.shape.takes_any:
            known = ", ".join(map(repr, self._params))
            raise BadInput(f"there is no input {name!r}; {self._endpoint.name} takes {known or 'none'}")
        known = self._endpoint.shape.any_hint
        return Param(name, Any if known is MISSING else known, None)

    def _whole(self, name: str, tensor: RawTensor) -> Any:
        """The value of a request that is one item."""
        param = self._param(name)
        kind = array_type(param.hint)
        if kind is Rows:
            return convert(name, tensor.nested(), param.hint)
        if kind is not None:
            return self._array(name, tensor, kind)
        if name not in self._params and tensor.datatype != BYTES:
            return tensor.array()
        rank, value = rank_of(param.hint), tensor.nested()
        for _ in range(len(tensor.shape) - rank):
            if len(value) != 1:
                batch = "beside arrays" if self._endpoint.batched else "in a call"
                raise BadInput(f"input {name!r} is one value {batch}, not {tensor}")
            value = value[0]
        return convert(name, value, param.hint)

    def _array(self, name: str, tensor: RawTensor, kind: Any) -> Any:
        """An array, tensor or frame; cast where another width was declared."""
        module = kind.__module__.partition(".")[0]
        if module == "torch":
            if tensor.datatype == BYTES:
                raise BadInput(f"input {name!r} takes numbers, not BYTES")
            value = tensor.torch_tensor()
        else:
            value = tensor.array()
        declared = self._declared.get(name)
        if declared is not None and declared.datatype != tensor.datatype:
            value = _cast(value, declared, module)
        return kind(value) if module == "pandas" else value

    def _frame(self, tensors: Mapping[str, RawTensor]) -> Arguments:
        """The inputs as columns; or the frame's values, under its own name."""
        (name,) = self._params
        kind = array_type(self._params[name].hint)
        if tensors.keys() == {name}:
            return {name: self._array(name, tensors[name], kind)}
        columns = {}
        for column, tensor in tensors.items():
            if len(tensor.shape) == 2 and tensor.shape[1] == 1:
                tensor = RawTensor(tensor.datatype, tensor.shape[:1], tensor.data)
            if len(tensor.shape) != 1:
                raise BadInput(f"input {column!r} is a column of shape [n], not {tensor}")
            declared = self._declared.get(column)
            values = [_readable(one) for one in tensor.elements()] if tensor.datatype == BYTES else tensor.array()
            cast = declared is not None and tensor.datatype not in (BYTES, declared.datatype)
            columns[column] = _cast(values, declared, "numpy") if cast and declared is not None else values
        try:
            import pandas

            return {name: pandas.DataFrame(columns)}
        except ValueError as error:
            raise BadInput(f"the inputs are no columns of one frame: {error}") from None

    def _elements(self, tensors: Mapping[str, RawTensor]) -> tuple[list[Arguments], bool]:
        """One item per element along the first dimension, or one if there is no such dimension."""
        columns: dict[str, list[Any]] = {}
        lone: dict[str, bool] = {}
        for name, tensor in tensors.items():
            hint = self._param(name).hint
            rank = rank_of(hint)
            if len(tensor.shape) < rank:
                raise BadInput(f"input {name!r} has {rank + 1} dimensions, not {tensor}")
            kind = array_type(hint)
            lone[name] = len(tensor.shape) == (0 if kind is not None else rank)
            if not lone[name] and 0 in tensor.shape[1:] and tensor.shape[0] > ITEMS_MAX:
                raise BadInput(f"input {name!r} has no elements")
            values = _nested(tensor, hint) if kind is None else self._array(name, tensor, kind)
            values = [values] if lone[name] else values
            read = converter_for(hint)
            try:
                columns[name] = list(values) if kind is not None else [read(value) for value in values]
            except Exception:
                columns[name] = [convert(name, value, hint) for value in values]  # Says what is wrong.
        sizes = {name: len(values) for name, values in columns.items()}
        if len(set(sizes.values())) > 1 or len(set(lone.values())) > 1:
            told = ", ".join(f"{name!r} {size}" for name, size in sizes.items())
            raise BadInput(f"the inputs differ in how many items they bring: {told}")
        count = next(iter(sizes.values()), 1)
        items = [{name: values[at] for name, values in columns.items()} for at in range(count)]
        return items, not next(iter(lone.values()), True)


def _nested(tensor: RawTensor, hint: Any) -> Any:
    value = tensor.nested()
    if tensor.datatype != BYTES or hint is not Any:
        return value
    return _texts(value)


def _texts(value: Any) -> Any:
    return [_texts(one) for one in value] if isinstance(value, list) else _readable(value)


def _readable(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _cast(value: Any, declared: Tensor, module: str) -> Any:
    if module == "torch":
        import torch

        names = {"FP16": "float16", "BF16": "bfloat16", "FP32": "float32", "FP64": "float64", "BOOL": "bool"}
        return value.to(getattr(torch, names.get(declared.datatype) or declared.datatype.lower()))
    return value.astype("<f4" if declared.datatype == "BF16" else FORMATS[declared.datatype][1], copy=False)
