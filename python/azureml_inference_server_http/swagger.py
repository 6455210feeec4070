"""The description of an entry script at `/swagger.json`: a file of the user's beside the script, else made from the
marks of inference-schema, where `run` has any."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILES = {"2": ("swagger.json", "swagger2.json"), "3": ("swagger3.json",), "3.1": ("swagger3.1.json",)}
JSON = "application/json"
ANYTHING = {"type": "object", "example": {}}
ERROR = {"type": "object", "properties": {"message": {"type": "string"}}}
OPENAPI = {"3": "3.0.0", "3.1": "3.1.0"}


def described(version: str, root: Path, run: Callable[..., Any]) -> dict[str, Any]:
    """The description in a version of the format; a LookupError says why there is none."""
    version = version.removesuffix(".0")
    if version not in FILES:
        raise LookupError(f"Swagger version [{version}] is not valid. Supported versions: [{', '.join(FILES)}].")
    for name in FILES[version]:
        if (root / name).is_file():
            found: dict[str, Any] = json.loads((root / name).read_text(encoding="utf-8"))
            return found
    given, answered = schemas(run, version)
    schemas_by_name = {"ServiceInput": given, "ServiceOutput": answered, "ErrorResponse": ERROR}
    title, prefix = os.environ.get("SERVICE_NAME") or "ML service", os.environ.get("SERVICE_PATH_PREFIX", "").strip("/")
    info = {"title": title, "version": os.environ.get("SERVICE_VERSION") or "1.0"}
    bodies = of_version_2() if version == "2" else of_version_3()
    at = f"/{prefix}" if prefix else ""
    paths = {f"{at}/": {"get": bodies["health"]}, f"{at}/score": {"post": bodies["score"]}}
    if version == "2":
        start: dict[str, Any] = {"swagger": "2.0", "info": info, "consumes": [JSON], "produces": [JSON]}
        return {**start, "paths": paths, "definitions": schemas_by_name}
    return {"openapi": OPENAPI[version], "info": info, "paths": paths, "components": {"schemas": schemas_by_name}}


def schemas(run: Callable[..., Any], version: str) -> tuple[Any, Any]:
    """What `run` takes and returns."""
    util = sys.modules.get("inference_schema.schema_util")
    if util is None or not util.is_schema_decorated(run):
        return ANYTHING, ANYTHING
    known = [str(one).removesuffix(".0") for one in util.get_supported_versions(run)]
    if version not in known:
        raise LookupError(
            f"Swagger version [{version}] is not supported for the scoring script. "
            f"Supported swagger versions: [{', '.join(known)}]."
        )
    return util.get_input_schema(run), util.get_output_schema(run)


def of_version_2() -> dict[str, Any]:
    """The two operations in the words of version 2."""

    def answers(schema: dict[str, Any]) -> dict[str, Any]:
        failed = {"description": "An error", "schema": {"$ref": "#/definitions/ErrorResponse"}}
        return {"200": {"description": "The answer", "schema": schema}, "default": failed}

    body = {"name": "serviceInputPayload", "in": "body", "schema": {"$ref": "#/definitions/ServiceInput"}}
    score = {"operationId": "RunMLService", "parameters": [body]}
    health = {"operationId": "ServiceHealthCheck", "responses": answers({"type": "string"})}
    return {"health": health, "score": {**score, "responses": answers({"$ref": "#/definitions/ServiceOutput"})}}


def of_version_3() -> dict[str, Any]:
    """The same in those of version 3."""

    def content(name: str) -> dict[str, Any]:
        return {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}

    failed = {"description": "An error", "content": content("ErrorResponse")}
    healthy = {"description": "The answer", "content": {"text/html": {"schema": {"type": "string"}}}}
    answer = {"description": "The answer", "content": content("ServiceOutput")}
    health = {"operationId": "ServiceHealthCheck", "responses": {"200": healthy, "default": failed}}
    score = {"operationId": "RunMLService", "requestBody": {"content": content("ServiceInput")}}
    return {"health": health, "score": {**score, "responses": {"200": answer, "default": failed}}}
