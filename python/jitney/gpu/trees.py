"""Tensors inside tuples, lists, dictionaries and dataclasses: what models take and give.

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
