"""What the server reads of a request before it waits: how many items it brings, its cost and its bucket.

Here it is written down which parameters an endpoint has and what their values look like from outside. Endpoints
whose requests are one item each, and all alike, say nothing, and their requests are not looked at.
"""

from __future__ import annotations

import collections.abc
import io
import typing
from typing import Any

from jitney.containers import container_for
from jitney.definition import Definition, Endpoint
from jitney.errors import DefinitionError
from jitney.expressions import Expression
from jitney.hints import LISTS, Param
from jitney.http.convert import UNIONS, name_of

BYTES = (bytes, bytearray, io.BytesIO)
NESTED = (*LISTS, tuple, dict, set, frozenset, collections.abc.Mapping)


def sizes(definition: Definition) -> dict[str, Any]:
    """How to read the sizes of requests, by endpoint."""
    read = {one.name: _of(one) for one in definition.endpoints if one.batched}
    return {name: spec for name, spec in read.items() if spec is not None}


def _of(endpoint: Endpoint) -> dict[str, Any] | None:
    params = [param for param in endpoint.params if not param.is_request]
    places = {param.name: place for place, param in enumerate(params)}
    told = [_param(param) for param in params]
    options = endpoint.options
    given = {"cost": options.cost, "bucket": options.bucket}
    expressions = {name: one for name, one in given.items() if isinstance(one, Expression)}
    if not expressions and not any(one["rows"] for one in told):
        return None
    for option, expression in expressions.items():
        _check(endpoint, option, expression, params)
    steps = {option: expression.steps(places) for option, expression in expressions.items()}
    others = {"takes_any": endpoint.shape.takes_any, "batch_dim": options.dims[0]}
    return {"params": told, **others, **steps}


def _param(param: Param) -> dict[str, Any]:
    form = form_of(param.hint) or "json"
    rows = form in ("array", "frame", "any") and not param.is_list
    return {"name": param.name, "form": form, "required": param.required, "rows": rows}


def _check(endpoint: Endpoint, option: str, expression: Expression, params: list[Param]) -> None:
    hints = {param.name: param.hint for param in params}
    for name in sorted(expression.names):
        if name not in hints:
            known = ", ".join(hints)
            raise DefinitionError(f"{endpoint.name}: {option}={expression} needs a parameter {name!r}; it has {known}")
        if form_of(hints[name]) is None:
            kind = name_of(hints[name])
            raise DefinitionError(f"{endpoint.name}: {option}={expression}: {name!r} is {kind}, which has no length")


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
