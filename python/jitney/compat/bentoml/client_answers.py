"""What the answers of a service stand for: values, pieces, files and failures."""

from __future__ import annotations

import asyncio
import http.client
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jitney.compat.bentoml.exceptions import BentoMLException, NotFound, ServiceUnavailable

STREAM = "text/event-stream"
PIECE_BYTES = 64 << 10
JSON = "application/json"


def is_stream(response: http.client.HTTPResponse) -> bool:
    return (response.getheader("Content-Type") or "").startswith(STREAM)


def result_of(response: http.client.HTTPResponse) -> Any:
    """What an answer stands for: JSON, text, pieces, or a file."""
    content_type = response.getheader("Content-Type") or ""
    if is_stream(response):
        return _pieces(response)
    body = response.read()
    disposition = response.getheader("Content-Disposition") or ""
    if content_type.startswith(JSON):
        return json.loads(body)
    if content_type.startswith("text/") and "filename" not in disposition:
        return body.decode()
    if "filename" in disposition or content_type.startswith(("image/", "audio/", "video/")):
        name = Path(disposition.partition('filename="')[2].rstrip('"')).name or "answer"
        path = Path(tempfile.mkdtemp(prefix="bentoml-client-")) / name
        path.write_bytes(body)
        return path
    return body


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    while piece := response.read1(PIECE_BYTES):
        yield piece.decode()


async def async_pieces(response: http.client.HTTPResponse) -> AsyncIterator[str]:
    while piece := await asyncio.to_thread(response.read1, PIECE_BYTES):
        yield piece.decode()


def failure_of(response: http.client.HTTPResponse, path: str) -> BentoMLException:
    """The server's error as an exception."""
    text = response.read().decode(errors="replace")
    try:
        content = json.loads(text)
        content = content[0] if isinstance(content, list) else content
        text = content.get("message") or content.get("error") or text
    except (ValueError, AttributeError, IndexError):
        pass
    if response.status == HTTPStatus.NOT_FOUND:
        return NotFound(f"{path}: {text}")
    kinds = {HTTPStatus.SERVICE_UNAVAILABLE: ServiceUnavailable}
    kind = kinds.get(HTTPStatus(response.status), BentoMLException)
    return kind(text, error_code=HTTPStatus(response.status))


def names_of(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """The parameters' names by path, out of an OpenAPI document."""
    found: dict[str, list[str]] = {}
    components = (document.get("components") or {}).get("schemas") or {}
    for path, verbs in (document.get("paths") or {}).items():
        content = ((verbs.get("post") or {}).get("requestBody") or {}).get("content") or {}
        schema = next((one.get("schema") or {} for one in content.values()), {})
        schema = next(iter(schema.get("anyOf") or [schema]))
        schema = components.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
        if path.startswith("/") and schema.get("properties"):
            found.setdefault(path.rpartition("/")[2], list(schema["properties"]))
    return found
