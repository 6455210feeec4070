"""Sizes as text: `"len"`, `"shape[1]"`, `"len(text) // 64"`.

What `cost` and `bucket` say in this form the server can evaluate by itself, before a request waits, and so
form batches by it. A worker evaluates the same on the arguments, since not every value shows its size outside; what
the values of a parameter look like from outside is known by its hint (`form_of`).
"""

from __future__ import annotations

import collections.abc
import io
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.hints import LISTS, Param
from jitney.values.containers import container_for, container_of
from jitney.values.convert import UNIONS, name_of

DIMS_MAX = 8
"""Dimensions that are looked at."""
ALLOWED = (
    "len, len(NAME), shape[N], NAME.shape[N] and whole numbers, joined by * and //, with a number above 0 behind //"
)
PLAIN = (list, str, bytes)
"""Nearly all values; their length is their first dimension."""
_FACTOR = re.compile(
    r"\s*(?:(?P<number>\d{1,18})|len(?:\(\s*(?P<of>[A-Za-z_]\w*)\s*\))?(?!\w)"
    r"|(?:(?P<whose>[A-Za-z_]\w*)\.)?shape\[\s*(?P<dim>-?\d{1,2})\s*\])\s*"
)
_JOINT = re.compile(r"\*|//")


@dataclass(frozen=True)
class Factor:
    """A number, or the size of one dimension of an argument."""

    number: int | None = None
    divides: bool = False
    name: str = ""
    """The argument's; empty for the first one."""
    dim: int = 0


class Expression:
    """A product of sizes and numbers; called with an item's arguments it returns its value."""

    def __init__(self, text: str, factors: tuple[Factor, ...]) -> None:
        self.text = text
        self.factors = factors

    def __repr__(self) -> str:
        return repr(self.text)

    def __call__(self, **arguments: Any) -> int:
        return self.of(arguments)

    def of(self, arguments: Mapping[str, Any]) -> int:
        """Its value for one item. A size that an argument does not have counts as 1."""
        value = 1
        for factor in self.factors:
            if factor.number is None:
                value *= _size(arguments, factor)
            else:
                value = value // factor.number if factor.divides else value * factor.number
        return value

    @property
    def names(self) -> set[str]:
        """The arguments that it measures."""
        return {factor.name for factor in self.factors if factor.number is None}

    def about(self, first: str) -> Expression:
        """The same with a name wherever it has none."""
        named = (replace(one, name=one.name or first) if one.number is None else one for one in self.factors)
        return Expression(self.text, tuple(named))

    def steps(self, places: Mapping[str, int]) -> list[dict[str, Any]]:
        """Its factors as the server reads them."""
        return [_step(factor, places) for factor in self.factors]


def parse(option: str, text: str) -> Expression:
    """Reads what an option says."""
    factors: list[Factor] = []
    at, divides = 0, False
    while True:
        found = _FACTOR.match(text, at)
        if found is None:
            raise _wrong(option, text)
        factors.append(_factor(found, divides))
        if divides and not factors[-1].number:
            raise _wrong(option, text)
        at = found.end()
        if at == len(text):
            return Expression(text, tuple(factors))
        joint = _JOINT.match(text, at)
        if joint is None:
            raise _wrong(option, text)
        at, divides = joint.end(), joint.group() == "//"


def extent(value: Any) -> tuple[int, ...]:
    """The dimensions of a value: the shape of an array, the length of a text or list, and of the lists in it."""
    if container_of(value) is not None:
        return tuple(int(size) for size in value.shape)
    if isinstance(value, (list, tuple)):
        return tuple(_nested(value))
    return (len(value),) if hasattr(value, "__len__") else ()


def _nested(value: Any) -> Iterable[int]:
    for _ in range(DIMS_MAX):
        yield len(value)
        if not value or not isinstance(value[0], (list, tuple)):
            return
        value = value[0]


def _size(arguments: Mapping[str, Any], factor: Factor) -> int:
    value: Any = arguments.get(factor.name or next(iter(arguments), ""))
    if factor.dim == 0 and type(value) in PLAIN:
        return len(value)
    sizes = extent(value)
    return sizes[factor.dim] if -len(sizes) <= factor.dim < len(sizes) else 1


def _factor(found: re.Match[str], divides: bool) -> Factor:
    if found["number"] is not None:
        return Factor(number=int(found["number"]), divides=divides)
    return Factor(name=found["of"] or found["whose"] or "", dim=int(found["dim"] or 0))


def _step(factor: Factor, places: Mapping[str, int]) -> dict[str, Any]:
    if factor.number is not None:
        return {"over" if factor.divides else "times": factor.number}
    return {"dim": {"param": places[factor.name], "dim": factor.dim}}


def _wrong(option: str, text: str) -> DefinitionError:
    return DefinitionError(f"{option}={text!r} is no expression: it may have {ALLOWED}; or give a function")


BYTES = (bytes, bytearray, io.BytesIO)
NESTED = (*LISTS, tuple, dict, set, frozenset, collections.abc.Mapping)


def check(endpoint: str, option: str, expression: Expression, params: Sequence[Param]) -> None:
    """Whether all that an expression measures is there and has a length."""
    hints = {param.name: param.hint for param in params if not param.is_request}
    for name in sorted(expression.names):
        if name not in hints:
            known = ", ".join(hints)
            raise DefinitionError(f"{endpoint}: {option}={expression} needs a parameter {name!r}; it has {known}")
        if form_of(hints[name]) is None:
            kind = name_of(hints[name])
            raise DefinitionError(f"{endpoint}: {option}={expression}: {name!r} is {kind}, which has no length")


def form_of(hint: Any) -> str | None:
    """What a parameter's values look like from outside; None if they have no length."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return form_of(typing.get_args(hint)[0])
    if origin in UNIONS:
        forms = (form_of(one) for one in typing.get_args(hint) if one is not type(None))
        return next((form for form in forms if form is not None), None)
    kind = origin or hint
    container = container_for(kind)
    if container is not None:
        return "frame" if container.name == "pandas" else "array"
    if hint is Any or hint is None or isinstance(hint, (str, typing.TypeVar)):
        return "any"
    if kind is str:
        return "text"
    if kind in BYTES:
        return "bytes"
    return "json" if kind in NESTED else None
