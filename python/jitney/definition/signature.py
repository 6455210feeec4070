"""What an endpoint takes and gives in tensors: as it declares it, or as its type hints tell.

A request in tensors is read in one of three ways, by the endpoint. *rows*: a batch function that takes arrays gets
the tensors as arrays, joined with those of other requests along the batch dimension. *elements*: a function that
takes no arrays is called with single values, and each element along the first dimension is an item. *whole*: a
function that takes arrays one request at a time.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.hints import LISTS, MISSING, FunctionShape, Param
from jitney.values.array_formats import dtype_of
from jitney.values.containers import container_for
from jitney.values.convert import UNIONS
from jitney.values.rows import Rows
from jitney.values.tensor import BYTES, FORMATS, Tensor

ROWS, ELEMENTS, WHOLE = "rows", "elements", "whole"
OUTPUT = "output"
"""The name of an answer that has none of its own."""
NUMBERS = {bool: "BOOL", int: "INT64", float: "FP64"}
UNKNOWN_ARRAY = Tensor("FP32", [-1])
"""What is told of arrays that are not declared; any other datatype and shape is taken too."""


@dataclass(frozen=True)
class TensorInput:
    """An input of an endpoint."""

    name: str
    tensor: Tensor
    required: bool
    is_array: bool
    """The function gets an array, tensor or frame."""
    declared: bool
    """Others are rejected before they wait."""


@dataclass(frozen=True)
class Signature:
    """The tensors of an endpoint."""

    inputs: tuple[TensorInput, ...]
    outputs: Mapping[str, Tensor]
    """Empty where the names are known only by the answer."""
    declares_outputs: bool
    items: str
    frame: str | None
    """The parameter whose columns the inputs are, for a function that takes one frame."""


def signature(
    name: str,
    batched: bool,
    shape: FunctionShape,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    dim: int,
) -> Signature:
    """The tensors of an endpoint, with what was declared about them."""
    params = [param for param in shape.params if not param.is_request]
    frame = _frame(params)
    known = {param.name for param in params}
    for unknown in (one for one in inputs if one not in known and frame is None and not shape.takes_any):
        raise DefinitionError(f"{name}: inputs has {unknown!r}, and there is no such parameter")
    arrays = [param for param in params if array_type(param.hint) is not None and not param.is_list]
    takes_arrays = bool(arrays) or (shape.takes_any and array_type(shape.any_hint) is not None)
    items = ELEMENTS if not takes_arrays else ROWS if batched else WHOLE
    found = [_input(param, inputs.get(param.name), items) for param in params]
    found += [TensorInput(one, tensor, True, True, True) for one, tensor in inputs.items() if one not in known]
    if frame is not None and any(one not in known for one in inputs):
        found = [one for one in found if one.name != frame]
    if batched:
        for one in found:
            if one.declared and (one.is_array or items == ELEMENTS):
                _check_batch_dim(name, one, dim if one.is_array else 0)
    told = dict(outputs) or _outputs(shape, items)
    return Signature(tuple(found), told, bool(outputs), items, frame)


def describe(one: Signature, takes_any: bool, dim: int) -> dict[str, Any]:
    """The same for the server."""
    inputs = [
        {
            **_spelt(each.name, each.tensor),
            "required": each.required and (one.frame is None or each.declared),
            "rows": each.is_array and one.items == ROWS,
            "checked": each.declared,
        }
        for each in one.inputs
    ]
    outputs = [_spelt(name, tensor) for name, tensor in one.outputs.items()]
    any_name = takes_any or (one.frame is not None and not any(each.declared for each in one.inputs))
    return {"inputs": inputs, "outputs": outputs, "items": one.items, "batch_dim": dim, "takes_any": any_name}


def array_type(hint: Any) -> Any:
    """The array, tensor or frame that a hint names; None if it names none."""
    kind = _origin(_bare(hint))
    return kind if container_for(kind) is not None else None


def rank_of(hint: Any) -> int:
    """The dimensions of one item's value."""
    hint = _bare(hint)
    args = typing.get_args(hint)
    is_list = _origin(hint) in (*LISTS, Rows, tuple, set, frozenset)
    return 1 + rank_of(args[0]) if is_list and args and len(set(args) - {Ellipsis}) == 1 else 0


def _spelt(name: str, tensor: Tensor) -> dict[str, Any]:
    return {"name": name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def _input(param: Param, declared: Tensor | None, items: str) -> TensorInput:
    is_array = array_type(param.hint) is not None
    tensor = declared or _tensor_of(param.hint, leading=items == ELEMENTS)
    required = param.default is MISSING
    return TensorInput(param.name, tensor, required, is_array and not param.is_list, declared is not None)


def _outputs(shape: FunctionShape, items: str) -> dict[str, Tensor]:
    hint = _bare(shape.output)
    if shape.gives_columns or getattr(_origin(hint), "__name__", "") == "DataFrame":
        return {}
    if _origin(hint) is dict and any(array_type(one) is not None for one in typing.get_args(hint)[1:]):
        return {}
    return {OUTPUT: _tensor_of(hint, leading=items != WHOLE)}


def _tensor_of(hint: Any, leading: bool) -> Tensor:
    hint = _bare(hint)
    of_rows = _origin(hint) is Rows
    if array_type(hint) is not None and not of_rows:
        return Tensor(_array_datatype(hint), UNKNOWN_ARRAY.shape)
    leading = leading and not of_rows
    leaf = hint
    for _ in range(rank_of(hint)):
        leaf = _bare(typing.get_args(leaf)[0])
    shape = [-1] * (rank_of(hint) + leading) or [1]
    if array_type(leaf) is not None:
        return Tensor(_array_datatype(leaf), shape)
    return Tensor(NUMBERS.get(leaf, BYTES), shape)


def _array_datatype(hint: Any) -> str:
    """The datatype of `NDArray[float32]`."""
    dtype = dtype_of(hint)
    name = str(getattr(dtype, "__name__", dtype)).rstrip("_")
    known = {"bool": "BOOL", "bytes": BYTES, "str": BYTES, "object": BYTES}
    name = known.get(name) or name.upper().replace("FLOAT", "FP")
    return name if name in FORMATS else UNKNOWN_ARRAY.datatype


def _bare(hint: Any) -> Any:
    """A hint without `Annotated` and `Optional`; of a choice the type of its first."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _bare(args[0])
    if origin in UNIONS:
        return _bare(next((one for one in args if one is not type(None)), Any))
    if origin is typing.Literal:
        return type(args[0])
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return type(next(iter(hint)).value) if len(hint) else str
    return hint


def _frame(params: Sequence[Param]) -> str | None:
    """The parameter of a function that takes one frame and nothing else."""
    if len(params) != 1 or params[0].is_list:
        return None
    kind = array_type(params[0].hint)
    return params[0].name if kind is not None and kind.__module__.startswith("pandas") else None


def _check_batch_dim(endpoint: str, one: TensorInput, dim: int) -> None:
    shape = one.tensor.shape
    if not -len(shape) <= dim < len(shape) or shape[dim] != -1:
        raise DefinitionError(
            f"{endpoint}: the input {one.name!r} of shape {list(shape)} has no batch dimension: write -1 in the "
            "place of it, or use @jitney.endpoint, which takes one request at a time"
        )


def _origin(hint: Any) -> Any:
    return typing.get_origin(hint) or hint
