"""Tensors inside tuples, lists, dictionaries and dataclasses: what models take and give, and whether two are close.

`transformers` answers with dictionaries that are dataclasses too, and takes dictionaries of a kind of its own; both
are kept as they are, only their tensors change.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

torch: Any = importlib.import_module("torch")


def tensors_of(value: Any) -> list[Any]:
    """The tensors of a value, in order."""
    if torch.is_tensor(value):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in tensors_of(part)]
    if isinstance(value, Mapping):
        return [tensor for part in value.values() for tensor in tensors_of(part)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [tensor for one in dataclasses.fields(value) for tensor in tensors_of(getattr(value, one.name))]
    return []


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with every tensor replaced by what `change` makes of it."""
    if torch.is_tensor(value):
        return change(value)
    if isinstance(value, tuple):
        parts = [rebuilt(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return [rebuilt(part, change) for part in value]
    if isinstance(value, MutableMapping):
        fresh = copy.copy(value)
        for name, part in value.items():
            fresh[name] = rebuilt(part, change)
        return fresh
    if isinstance(value, Mapping):
        return {name: rebuilt(part, change) for name, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: rebuilt(getattr(value, one.name), change) for one in dataclasses.fields(value) if one.init}
        return dataclasses.replace(value, **fields)
    return value


def structure_of(value: Any) -> Any:
    """What two values have in common that differ in their tensors only; can be hashed where everything in it can."""
    if torch.is_tensor(value):
        return torch.Tensor
    if isinstance(value, (tuple, list)):
        return (type(value), *map(structure_of, value))
    if isinstance(value, Mapping):
        return (type(value), *((name, structure_of(part)) for name, part in value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value), *(structure_of(getattr(value, one.name)) for one in dataclasses.fields(value)))
    return value


def constants_of(value: Any) -> list[Any]:
    """Whatever in a value is neither a tensor nor something that holds tensors, nor None."""
    if value is None or torch.is_tensor(value):
        return []
    if isinstance(value, (tuple, list)):
        return [constant for part in value for constant in constants_of(part)]
    if isinstance(value, Mapping):
        return [constant for part in value.values() for constant in constants_of(part)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return [constant for one in fields for constant in constants_of(getattr(value, one.name))]
    return [value]


TOLERANCES = {"float16": 2e-2, "bfloat16": 6e-2, "tf32": 2.5e-3, "float32": 1e-3, "float64": 1e-6}
"""Of the largest value of a tensor, by its type."""
LOOSER = 2.0
"""Another way of computing the same may differ so much more than a replay of the same kernels. Convolutions of single
precision are done in TF32 unless somebody forbids it, for which torch's own tests allow 5e-3."""


def difference(found: Any, wanted: Any, other_way: bool = False) -> str | None:
    """How two answers differ beyond the tolerance of their precision, in words; None: they do not.

    Values that are not finite must be at the same places, but `other_way`, for another way of computing, may be finite
    where the model overflows.
    """
    if structure_of(found) != structure_of(wanted):
        return "another structure"
    for ours, theirs in zip(tensors_of(found), tensors_of(wanted)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"{tuple(ours.shape)} of {ours.dtype} instead of {tuple(theirs.shape)} of {theirs.dtype}"
        told = _tensors_differ(ours, theirs, other_way)
        if told is not None:
            return told
    return None


def _tensors_differ(ours: Any, theirs: Any, other_way: bool) -> str | None:
    if not theirs.numel():
        return None
    if not theirs.is_floating_point():
        unequal = int((ours != theirs).sum())
        return f"{unequal} of {theirs.numel()} whole numbers differ" if unequal else None
    name = str(theirs.dtype).removeprefix("torch.")
    if other_way and name == "float32" and theirs.is_cuda and torch.backends.cudnn.allow_tf32:
        name = "tf32"
    ours, theirs = ours.float(), theirs.float()
    ours_finite, theirs_finite = torch.isfinite(ours), torch.isfinite(theirs)
    missing = theirs_finite & ~ours_finite if other_way else theirs_finite != ours_finite
    if bool(missing.any()):
        return f"{int(missing.sum())} of {theirs.numel()} values are not finite, or only now"
    if not bool(theirs_finite.any()):
        return None
    largest = float(theirs[theirs_finite].abs().max())
    apart = float((ours - theirs)[theirs_finite].abs().max())
    allowed = TOLERANCES.get(name, TOLERANCES["float32"]) * (LOOSER if other_way else 1.0) * max(largest, 1e-6)
    return None if apart <= allowed else f"values differ by {apart:.3g} where the largest is {largest:.3g}"
