"""What the server reads of a request before it waits: how many items it brings, its cost and its bucket.

Here it is written down which parameters an endpoint has and what their values look like from outside. Endpoints
whose requests are one item each, and all alike, say nothing, and their requests are not looked at.
"""

from __future__ import annotations

from typing import Any

from jitney.definition.definition import Definition, Endpoint
from jitney.definition.expressions import Expression
from jitney.definition.forms import form_of
from jitney.definition.hints import Param


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
    steps = {option: expression.steps(places) for option, expression in expressions.items()}
    others = {"takes_any": endpoint.shape.takes_any, "batch_dim": options.dims[0]}
    return {"params": told, **others, **steps}


def _param(param: Param) -> dict[str, Any]:
    form = form_of(param.hint) or "json"
    rows = form in ("array", "frame", "any") and not param.is_list
    return {"name": param.name, "form": form, "required": param.required, "rows": rows}
