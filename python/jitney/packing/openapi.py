"""The OpenAPI operations of a definition, one per endpoint, from its type hints and docstrings."""

from __future__ import annotations

import json
import typing
from typing import Any

from jitney.definition.definition import Definition, Endpoint
from jitney.definition.hints import MISSING, Param
from jitney.definition.samples import samples
from jitney.http.response import BYTES, JSON
from jitney.packing.schemas import SIMPLE, Schemas, is_binary
from jitney.values.array_formats import NPY_TYPE
from jitney.values.containers import container_for
from jitney.values.rows import Rows

TEXT_PLAIN, EVENTS = "text/plain", "text/event-stream"
EXAMPLE_CHARS_MAX = 512
"""A longer example that was made up helps nobody: an image, for example."""


def describe(definition: Definition) -> dict[str, Any]:
    """One operation per endpoint, and the classes that they take and give. Raw endpoints take what they like."""
    schemas = Schemas()
    paths: dict[str, Any] = {}
    for one in definition.endpoints:
        if not one.raw:
            path, method = _route(definition, one)
            paths.setdefault(path, {})[method] = _operation(definition, one, method, schemas)
    return {"paths": paths, "schemas": schemas.classes}


def _route(definition: Definition, endpoint: Endpoint) -> tuple[str, str]:
    """The path and the method of an endpoint: its own route, or else below the model's name."""
    path, methods = endpoint.options.route_methods or (None, ())
    if path is not None:
        return path, methods[0].lower() if methods else "post"
    alone = len(definition.endpoints) == 1
    return (f"/{definition.name}" if alone else f"/{definition.name}/{endpoint.name}"), "post"


def _operation(definition: Definition, endpoint: Endpoint, method: str, schemas: Schemas) -> dict[str, Any]:
    alone = len(definition.endpoints) == 1
    doc = endpoint.doc or (definition.doc if alone else "")
    return {
        "operationId": definition.name if alone else f"{definition.name}_{endpoint.name}",
        "tags": [definition.name],
        "summary": doc.partition("\n")[0] or f"Calls {endpoint.name}",
        "description": doc,
        **({"parameters": _query(endpoint, schemas)} if method == "get" else {"requestBody": _body(endpoint, schemas)}),
        "responses": {"200": {"description": "The answer", "content": _answer(endpoint, schemas)}},
    }


def _query(endpoint: Endpoint, schemas: Schemas) -> list[dict[str, Any]]:
    """The arguments of a request without a body."""
    params = [param for param in endpoint.params if not param.is_request]
    return [
        {"in": "query", "name": one.name, "required": one.required, "schema": _property(one, schemas)} for one in params
    ]


def _body(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    params = [param for param in endpoint.params if not param.is_request]
    required = [param.name for param in params if param.required]
    properties = {param.name: _property(param, schemas) for param in params}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["additionalProperties"] = schemas.of(endpoint.shape.any_hint) if endpoint.shape.takes_any else False
    if required:
        schema["required"] = required
    own = properties[params[0].name] if len(params) == 1 else {"type": "object"}
    # The value of a single parameter may also stand there by itself.
    either = {"anyOf": [schema, own]} if own and own.get("type") != "object" else schema
    content: dict[str, Any] = {JSON: {"schema": either, **_example(endpoint)}}
    if any(is_binary(param.hint) for param in params):
        content = {"multipart/form-data": {"schema": schema}}
        if len(params) == 1:
            content[BYTES] = {"schema": SIMPLE[bytes]}
    elif (
        len(params) == 1 and container_for(_origin(params[0].hint)) is not None and _origin(params[0].hint) is not Rows
    ):
        content[NPY_TYPE] = {"schema": SIMPLE[bytes]}
    if len(params) == 1 and params[0].hint is str:  # A single text is also taken as the body itself.
        content[TEXT_PLAIN] = {"schema": SIMPLE[str]}
    # Where one text or file is all that is needed, an empty body is an empty one.
    needed = [param.hint for param in params if param.required]
    is_empty = len(needed) == 1 and (needed[0] is bytes or (needed[0] is str and len(params) == 1))
    return {"required": bool(needed) and not is_empty, "content": content}


def _example(endpoint: Endpoint) -> dict[str, Any]:
    """The decorator's first example, if it has a JSON form. For arrays one is made up: their schema tells no shape."""
    given = endpoint.options.examples or ()
    made_up = not given and any(container_for(_origin(param.hint)) is not None for param in endpoint.params)
    if made_up:
        given = next(iter(samples(endpoint).tries), [])
    try:
        text = json.dumps(dict(given[0]))
    except (IndexError, TypeError, ValueError):
        return {}
    return {} if made_up and len(text) > EXAMPLE_CHARS_MAX else {"example": json.loads(text)}


def _property(param: Param, schemas: Schemas) -> dict[str, Any]:
    described = schemas.of(param.hint)
    if param.default is not MISSING and isinstance(param.default, (int, float, str, bool)):
        described = {**described, "default": param.default}
    return described


def _answer(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    """The form of an answer; pieces of a stream come one after the other, or as events where the client asks for
    them."""
    hint = endpoint.shape.output
    events = {EVENTS: {"schema": SIMPLE[str]}} if endpoint.streams else {}
    if hint is str:
        return {TEXT_PLAIN: {"schema": SIMPLE[str]}, **events}
    if is_binary(hint):
        return {BYTES: {"schema": SIMPLE[bytes]}, **events}
    schema = schemas.of(hint)
    return {"*/*": {"schema": {}}, **events} if endpoint.streams or not schema else {JSON: {"schema": schema}}


def _origin(hint: Any) -> Any:
    return typing.get_origin(hint) or hint
