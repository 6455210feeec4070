"""What the values of a parameter look like from outside, by its hint, and so whether an expression can measure them."""

from __future__ import annotations

import collections.abc
import io
import typing
from collections.abc import Sequence
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.expressions import Expression
from jitney.definition.hints import LISTS, Param
from jitney.values.containers import container_for
from jitney.values.convert import UNIONS, name_of

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
