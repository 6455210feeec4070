"""`/schema.json`: what BentoML's own clients read before they call a service."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from jitney.compat.bentoml.answering import EVENT_STREAM, is_image_type
from jitney.compat.bentoml.api import ApiNote
from jitney.compat.bentoml.parameters import WireParam, WireShape
from jitney.compat.bentoml.validators import ContentType
from jitney.definition.hints import LISTS, MISSING, STREAMS
from jitney.definition.signature import array_type
from jitney.packing.openapi import schema_of

PATH = "GET /schema.json"
TENSORS = {"numpy": "numpy-array", "torch": "torch-tensor"}
FILES = {"Path": "binary", "bytes": "binary"}


def describe(
    name: str, apis: Mapping[str, ApiNote], shapes: Mapping[str, WireShape], streams: Mapping[str, bool]
) -> dict[str, Any]:
    """The document of a service."""
    attributes = sorted(apis, key=lambda one: apis[one].name)
    routes = [
        {
            "name": apis[one].name,
            "route": apis[one].route,
            "batchable": apis[one].batchable,
            "input": _input(shapes[one]),
            "output": _output(shapes[one], streams[one]),
            "is_task": False,
        }
        for one in attributes
    ]
    paths = {apis[one].route: {"mounted": False} for one in attributes}
    return {"name": name, "type": "service", "routes": routes, "paths": paths}


def _input(shape: WireShape) -> dict[str, Any]:
    roots = [one for one in shape.params if one.by_place]
    if roots:
        return {**_schema(roots[0].told), "root_input": True}
    required = [one.name for one in shape.params if one.default is MISSING]
    schema: dict[str, Any] = {
        "properties": {one.name: _property(one) for one in shape.params},
        "title": "Input",
        "type": "object",
    }
    return {**schema, "required": required} if required else schema


def _property(param: WireParam) -> dict[str, Any]:
    schema = {**_schema(param.told), "title": param.name.replace("_", " ").title()}
    plain = isinstance(param.default, (str, int, float, bool, list, dict))
    return {**schema, "default": param.default} if plain else schema


def _output(shape: WireShape, streams: bool) -> dict[str, Any]:
    media = next((one.content_type for one in shape.output_notes if isinstance(one, ContentType)), None)
    if streams:
        inner = typing.get_args(shape.output) if typing.get_origin(shape.output) in STREAMS else ()
        return {**_schema(inner[0] if inner else str), "is_stream": True, "media_type": EVENT_STREAM.partition(";")[0]}
    schema = _schema(shape.output)
    return {**schema, "media_type": media} if media else schema


def _schema(hint: Any) -> dict[str, Any]:
    """The schema of a hint, with BentoML's own types for arrays, frames, files and images."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) in LISTS and args:
        return {"type": "array", "items": _schema(args[0])}
    kind = array_type(hint)
    if kind is not None:
        library = kind.__module__.partition(".")[0]
        if library == "pandas":
            return {"type": "dataframe", "orient": "records"}
        return {"type": "tensor", "format": TENSORS.get(library, library)}
    if is_image_type(hint):
        return {"type": "file", "format": "image", "pil": True}
    if getattr(hint, "__name__", "") in FILES:
        return {"type": "file", "format": FILES[hint.__name__]}
    return schema_of(hint)
