"""The OpenAPI paths of a definition, from its type hints and docstrings."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import io
import json
import typing
from typing import Any

from jitney.definition.definition import Definition, Endpoint
from jitney.definition.hints import MISSING, Param
from jitney.definition.samples import samples
from jitney.http.response import BYTES, JSON, TEXT
from jitney.values.array_formats import NPY_TYPE
from jitney.values.containers import container_for
from jitney.values.convert import UNIONS, has_no_default
from jitney.values.rows import Rows

EXAMPLE_CHARS_MAX = 512
"""A longer example that was made up helps nobody: an image, for example."""
SIMPLE: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    bytes: {"type": "string", "format": "binary"},
    bytearray: {"type": "string", "format": "binary"},
    io.BytesIO: {"type": "string", "format": "binary"},
    dict: {"type": "object"},
    list: {"type": "array", "items": {}},
    type(None): {"nullable": True},
}


def paths(definition: Definition) -> dict[str, Any]:
    """One path per endpoint; the default one also under the model's own name. Raw endpoints take what they like."""
    described: dict[str, Any] = {}
    default = definition.default
    if default is not None and not default.raw:
        described[f"/{definition.name}"] = {"post": _operation(definition, default, definition.name)}
    if len(definition.endpoints) > 1:
        for one in definition.endpoints:
            if not one.raw:
                described[f"/{definition.name}/{one.name}"] = {
                    "post": _operation(definition, one, f"{definition.name}_{one.name}")
                }
    for one in definition.endpoints:
        routed = one.options.route_methods
        if routed is not None and not one.raw:
            method = routed[1][0].lower() if routed[1] else "post"
            operation = _operation(definition, one, f"{definition.name}_{one.name}_route")
            described.setdefault(routed[0], {})[method] = operation
    return described


def _operation(definition: Definition, endpoint: Endpoint, operation_id: str) -> dict[str, Any]:
    doc = endpoint.doc or definition.doc
    return {
        "operationId": operation_id,
        "tags": [definition.name],
        "summary": doc.partition("\n")[0],
        "description": doc,
        "requestBody": _body(endpoint),
        "responses": {
            "200": {"description": "The answer", "content": _answer(endpoint.shape.output)},
            "400": {"description": "The request does not fit the parameters"},
            "500": {"description": "The model failed on this request"},
            "503": {"description": "Rejected: see the reason, and Retry-After for when to try again"},
        },
    }


def _body(endpoint: Endpoint) -> dict[str, Any]:
    params = [param for param in endpoint.params if not param.is_request]
    required = [param.name for param in params if param.required]
    schema: dict[str, Any] = {"type": "object", "properties": {param.name: _property(param) for param in params}}
    schema["additionalProperties"] = False
    if required:
        schema["required"] = required
    own = _property(params[0]) if len(params) == 1 else {"type": "object"}
    # The value of a single parameter may also stand there by itself.
    either = {"anyOf": [schema, own]} if own and own.get("type") != "object" else schema
    content: dict[str, Any] = {JSON: {"schema": either, **_example(endpoint)}}
    if any(_is_binary(param.hint) for param in params):
        content = {"multipart/form-data": {"schema": schema}}
        if len(params) == 1:
            content[BYTES] = {"schema": SIMPLE[bytes]}
    elif (
        len(params) == 1 and container_for(_origin(params[0].hint)) is not None and _origin(params[0].hint) is not Rows
    ):
        content[NPY_TYPE] = {"schema": SIMPLE[bytes]}
    # A single text is also taken as the body itself, and an empty one is a text.
    is_text = len(params) == 1 and params[0].hint is str
    if is_text:
        content[TEXT] = {"schema": SIMPLE[str]}
    return {"required": bool(required) and not is_text, "content": content}


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


def _property(param: Param) -> dict[str, Any]:
    described = schema_of(param.hint)
    if param.default is not MISSING and isinstance(param.default, (int, float, str, bool)):
        described = {**described, "default": param.default}
    return described


def _answer(hint: Any) -> dict[str, Any]:
    if hint is str:
        return {TEXT: {"schema": SIMPLE[str]}}
    if _is_binary(hint):
        return {BYTES: {"schema": SIMPLE[bytes]}}
    return {JSON: {"schema": schema_of(hint)}}


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON schema of a hint; empty, which means anything, for an unknown hint."""
    try:
        if hint in SIMPLE:
            return dict(SIMPLE[hint])
    except TypeError:
        return {}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if container_for(_origin(hint)) is not None:
        return {"type": "array", "items": schema_of(args[0]) if origin is Rows else {}}
    if origin in UNIONS:
        return _union(args)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(args[1])}
    if origin in (list, set, frozenset, tuple):
        return {"type": "array", "items": schema_of(args[0]) if len(set(args) - {Ellipsis}) == 1 else {}}
    return _class(hint) if isinstance(hint, type) else {}


def _union(args: tuple[Any, ...]) -> dict[str, Any]:
    schemas = [schema_of(arg) for arg in args if arg is not type(None)]
    one = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {**one, "nullable": True} if type(None) in args else one


def _class(hint: type) -> dict[str, Any]:
    if issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    if hasattr(hint, "model_json_schema"):
        schema: dict[str, Any] = hint.model_json_schema()
        return schema
    return {}


def _dataclass(hint: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(hint)
    fields = [field for field in dataclasses.fields(hint) if field.init]
    needed = [field.name for field in fields if has_no_default(field)]
    described: dict[str, Any] = {
        "type": "object",
        "title": hint.__name__,
        "properties": {field.name: schema_of(hints.get(field.name, Any)) for field in fields},
    }
    return {**described, "required": needed} if needed else described


def _origin(hint: Any) -> Any:
    return typing.get_origin(hint) or hint


def _is_binary(hint: Any) -> bool:
    return hint in (bytes, bytearray, io.BytesIO) or (inspect.isclass(hint) and hint.__module__.startswith("PIL"))
