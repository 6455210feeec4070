"""Items made up from type hints: what `jitney check` runs a function with if nobody gives it examples.

An array is lists in lists, as clients send it. Shapes of arrays that nobody declared are guessed, and a function may
be right to reject a guess.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import io
import math
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from jitney.definition.definition import Endpoint
from jitney.definition.hints import LISTS, MAPPINGS, Param
from jitney.definition.signature import array_type
from jitney.values.convert import UNIONS, has_no_default
from jitney.values.rows import AnyRows, Rows
from jitney.values.tensor import BYTES, Tensor, nest

SAMPLES = 5
"""Enough for permutations to matter."""
GUESSES: tuple[tuple[int, ...], ...] = ((4,), (), (8, 8), (3, 32, 32))
"""Shapes of one row of an array that nobody declared, the usual one first."""
ROWS = 1
"""Rows that a made-up item brings."""
FREE = 4
"""The size of a dimension that may have any."""


@dataclass(frozen=True)
class Samples:
    """Items to run an endpoint with."""

    tries: list[list[dict[str, Any]]]
    """The same items with other guesses; the first that the function takes are good."""
    made_up: bool
    """Nobody gave them."""
    guessed: bool = False
    """They hold something that the hints do not tell: the shape of an array."""


def samples(endpoint: Endpoint, given: Sequence[Mapping[str, Any]] = ()) -> Samples:
    """A few items' arguments: those given, those of the decorator, or made-up ones; none if nobody can know."""
    known = [dict(one) for one in (given or endpoint.options.examples or endpoint.options.warm_up or ())]
    if known:
        return Samples([(known * SAMPLES)[: max(SAMPLES, len(known))]], made_up=False)
    guessed = _is_guessed(endpoint)
    guesses = GUESSES if guessed else GUESSES[:1]
    try:
        made = [[_item(endpoint, seed, guess) for seed in range(SAMPLES)] for guess in guesses]
    except Unknown:
        made = []
    return Samples(made, True, guessed)


def _is_guessed(endpoint: Endpoint) -> bool:
    """Whether the hints do not tell the shape of an array."""
    declared = {one.name for one in endpoint.tensors.inputs if one.declared}
    kinds = {param.name: array_type(param.hint) for param in _wanted(endpoint)}
    return any(kind not in (None, Rows) and name not in declared for name, kind in kinds.items())


def _wanted(endpoint: Endpoint) -> list[Param]:
    """Parameters that have to be given."""
    return [param for param in endpoint.params if param.required]


def _item(endpoint: Endpoint, seed: int, guess: tuple[int, ...]) -> dict[str, Any]:
    tensors = {one.name: one for one in endpoint.tensors.inputs}
    item: dict[str, Any] = {}
    for param in _wanted(endpoint):
        told = tensors.get(param.name)
        kind = array_type(param.hint)
        if told is not None and told.declared:
            item[param.name] = _tensor(told.tensor, seed, _batch_dim(endpoint, param), drops=param.is_list)
        elif kind is Rows:
            item[param.name] = _rows(param.hint, seed)
        elif kind is not None:
            item[param.name] = _array(endpoint, param, seed, guess)
        else:
            item[param.name] = value_of(param.hint, seed)
    if not endpoint.params and endpoint.tensors.inputs:  # `**arrays` that were declared.
        for one in endpoint.tensors.inputs:
            item[one.name] = _tensor(one.tensor, seed, endpoint.options.dims[0], drops=False)
    if endpoint.shape.takes_any and not item:
        raise Unknown(endpoint.name)  # Nobody knows its names.
    return item


def _batch_dim(endpoint: Endpoint, param: Param) -> int | None:
    return endpoint.options.dims[0] if endpoint.batched and not param.is_list else None


def _tensor(tensor: Tensor, seed: int, batch_dim: int | None, *, drops: bool) -> Any:
    """A value of a declared tensor; of a list of arrays without the dimension of the batch."""
    sizes = [FREE if size == -1 else size for size in tensor.shape]
    if batch_dim is not None and sizes:
        sizes[batch_dim] = ROWS
    if drops:
        sizes = sizes[1:]
    return _numbers(sizes, seed, tensor.datatype)


def _rows(hint: Any, seed: int) -> list[Any]:
    """A list of rows."""
    (of,) = get_args(hint) or (Any,)
    return [value_of(of, seed + at) for at in range(ROWS)]


def _array(endpoint: Endpoint, param: Param, seed: int, guess: tuple[int, ...]) -> Any:
    kind = array_type(param.hint)
    if kind is AnyRows:
        raise Unknown(param.hint)
    if kind.__module__.startswith("pandas") and kind.__name__ == "DataFrame":
        raise Unknown(param.hint)  # Nobody knows its columns.
    dim = _batch_dim(endpoint, param)
    sizes = list(guess)
    if dim is not None:
        sizes.insert(dim if dim >= 0 else len(sizes) + 1 + dim, ROWS)
    return _numbers(sizes or [ROWS], seed, "FP32")


def _numbers(sizes: Sequence[int], seed: int, datatype: str) -> Any:
    count = math.prod(sizes)
    if datatype == BYTES:
        elements: list[Any] = [f"example {seed + at}" for at in range(count)]
    elif datatype == "BOOL":
        elements = [(seed + at) % 2 == 0 for at in range(count)]
    elif datatype.startswith(("INT", "UINT")):
        elements = [(seed + at) % 10 for at in range(count)]
    else:
        elements = [((seed * 7 + at) % 10) / 10 for at in range(count)]
    return nest(elements, sizes)


DEPTH_MAX = 8


class Unknown(LookupError):
    """Nobody can know what a value of this type is."""


def value_of(hint: Any, seed: int, depth: int = 0) -> Any:
    """A value of a type, as JSON has it."""
    if depth > DEPTH_MAX:
        raise Unknown(hint)
    plain = {
        int: seed,
        float: seed + 0.5,
        str: f"example {seed}",
        bool: seed % 2 == 0,
        dict: {"example": seed},
        list: [seed, seed + 1],
        bytes: f"example {seed}".encode(),
        bytearray: f"example {seed}".encode(),
        io.BytesIO: f"example {seed}".encode(),
        type(None): None,
        datetime.date: f"2024-05-0{1 + seed % 9}",
        datetime.datetime: f"2024-05-0{1 + seed % 9}T12:00:00",
    }
    if isinstance(hint, type) and hint in plain:
        return plain[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is not None:
        return _generic(hint, origin, args, seed, depth)
    if inspect.isclass(hint):
        return _object(hint, seed, depth)
    raise Unknown(hint)


def _generic(hint: Any, origin: Any, args: tuple[Any, ...], seed: int, depth: int) -> Any:
    def one(arg: Any, more: int = 0) -> Any:
        return value_of(arg, seed + more, depth + 1)

    if origin in UNIONS:
        return one(next((arg for arg in args if arg is not type(None)), type(None)))
    if origin is typing.Annotated:
        return one(args[0])
    if origin is typing.Literal:
        return args[seed % len(args)]
    if origin is tuple and args and args[-1] is not Ellipsis:
        return [one(arg) for arg in args]
    if origin in (*LISTS, set, frozenset, tuple) and args:
        return [one(args[0]), one(args[0], 1)]
    if origin in MAPPINGS and len(args) == 2:
        return {"example": one(args[1])}
    raise Unknown(hint)


def _object(hint: type, seed: int, depth: int) -> Any:
    if issubclass(hint, enum.Enum):
        members = list(hint)
        return members[seed % len(members)].value
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        needed = [one.name for one in dataclasses.fields(hint) if one.init and has_no_default(one)]
        return {name: value_of(hints[name], seed, depth + 1) for name in needed}
    fields = getattr(hint, "model_fields", None)
    if isinstance(fields, dict):
        required = {name: one for name, one in fields.items() if one.is_required()}
        return {one.alias or name: _field(one, seed, depth + 1) for name, one in required.items()}
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image is not None and issubclass(hint, image):
        return _picture(seed)
    raise Unknown(hint)


def _field(field: Any, seed: int, depth: int) -> Any:
    """A value of a pydantic field: one of its examples, or one within its bounds."""
    if field.examples:
        return field.examples[seed % len(field.examples)]
    value = value_of(field.annotation, seed, depth)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _within(value, _limit(field, "ge", "gt"), _limit(field, "le", "lt"))
    most = _limit(field, "max_length")
    return value[:most] if isinstance(value, (str, list)) else value


def _limit(field: Any, *names: str) -> Any:
    found = (getattr(one, name, None) for one in field.metadata for name in names)
    return next((one for one in found if one is not None), None)


def _within(value: Any, low: Any, high: Any) -> Any:
    """A number between two bounds, where there are any; never a bound itself if there is room."""
    if low is not None and value <= low:
        value = low + 1 if high is None or low + 1 < high else (low + high) / 2
    if high is not None and value >= high:
        value = high - 1 if low is None or high - 1 > low else (low + high) / 2
    return value


def _picture(seed: int) -> bytes:
    image: Any = sys.modules["PIL.Image"]
    written = io.BytesIO()
    image.new("RGB", (32, 32), (seed * 40 % 256, 80, 120)).save(written, "PNG")
    return written.getvalue()
