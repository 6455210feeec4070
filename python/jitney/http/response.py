"""An answer with a status and headers of its own, whole or in pieces; and from one item's output to a body and its
content type.

Bytes stay bytes, text is text, everything else is JSON, arrays included, unless the client accepts npy. NaN and
infinities, which JSON does not have, are `null`. The form is chosen by the value, so that it never depends on the
other items of a batch.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from jitney.values import array_formats
from jitney.values.containers import container_of

Pairs = Iterable[tuple[str, str]]


class Response:
    """What an endpoint may return instead of a plain value; a generator may yield one first, for its head.

    The body is what endpoints return: bytes, text, or anything that becomes JSON. A generator is sent piece by piece,
    unless the endpoint takes batches.
    """

    __slots__ = ("body", "headers", "media_type", "status")

    def __init__(
        self,
        body: Any = b"",
        status: int = 200,
        headers: Mapping[str, str] | Pairs | None = None,
        media_type: str | None = None,
    ) -> None:
        self.body = body
        if type(status) is not int or not 200 <= status <= 599:
            raise ValueError(f"status must be between 200 and 599, not {status!r}")
        self.status = status
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        self.headers: list[tuple[str, str]] = [(str(name), str(value)) for name, value in pairs]
        """All of them; a name may be there several times."""
        self.media_type = media_type
        """The content type; by itself that of the body."""

    @property
    def is_stream(self) -> bool:
        """Whether the body comes in pieces."""
        return isinstance(self.body, (Iterator, AsyncIterator))

    @property
    def is_head(self) -> bool:
        """Whether nothing but a head is told."""
        return isinstance(self.body, bytes) and not self.body

    def pieces(self) -> Iterator[Any] | AsyncIterator[Any]:
        """The head without a body, then the pieces."""
        head = Response(b"", self.status, self.headers, self.media_type)
        return _after_async(head, self.body) if isinstance(self.body, AsyncIterator) else _after(head, self.body)

    def head(self, content_type: str) -> list[tuple[str, str]]:
        """The headers with the type of the body, which is `content_type` where nothing else is said."""
        if any(name.lower() == "content-type" for name, _ in self.headers):
            return self.headers
        empty = isinstance(self.body, (bytes, str)) and not self.body and self.media_type is None
        return self.headers if empty else [("Content-Type", self.media_type or content_type), *self.headers]

    def __repr__(self) -> str:
        return f"Response({self.status})"


def stream_of(result: Any, raw: bool = False) -> Response | None:
    """What was returned, if it is to be sent in pieces; of a raw endpoint also without a head."""
    if isinstance(result, Response):
        return result if result.is_stream else None
    return Response(result) if raw and isinstance(result, (Iterator, AsyncIterator)) else None


def _after(head: Response, pieces: Iterator[Any]) -> Iterator[Any]:
    try:
        yield head
        yield from pieces
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()


async def _after_async(head: Response, pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
    try:
        yield head
        async for piece in pieces:
            yield piece
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


PLAIN_TYPES = frozenset((dict, list, int, float, bool, type(None)))
"""Outputs that are JSON and nothing else."""
JSON, TEXT, BYTES = "application/json", "text/plain; charset=utf-8", "application/octet-stream"


def encode(output: Any, accept: str = "") -> tuple[str, bytes | bytearray | memoryview]:
    """The content type and the body of an output."""
    if type(output) in PLAIN_TYPES:
        return JSON, encode_json(output)
    if isinstance(output, str):
        return TEXT, output.encode()
    if isinstance(output, (bytes, bytearray)):
        return BYTES, output
    if isinstance(output, memoryview):
        return BYTES, output.tobytes()
    if array_formats.NPY_TYPE in accept and container_of(output) is not None:
        return array_formats.NPY_TYPE, array_formats.write_npy(output)
    return JSON, encode_json(output)


def encode_json(output: Any) -> bytes:
    """An output as JSON."""
    try:
        return "".join(_encode_json(output, 0)).encode()
    except ValueError:  # It may hold a NaN; what else is wrong is said again.
        return _encode_json_finite(output)


def _encode_json_finite(output: Any) -> bytes:
    text = json.dumps(output, default=_plain, ensure_ascii=False)
    finite = json.loads(text, parse_constant=lambda _: None)
    return "".join(_encode_json(finite, 0)).encode()


def _plain(value: Any) -> Any:
    """Values that JSON does not know by itself."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        exponent = value.as_tuple().exponent
        return int(value) if isinstance(exponent, int) and exponent >= 0 else float(value)
    if isinstance(value, PurePath) or is_uuid(value):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return array_formats.to_plain(value)


def is_uuid(value: Any) -> bool:
    """Whether it is one. There is none in a process that has not imported them."""
    uuid = sys.modules.get("uuid")
    return uuid is not None and isinstance(value, uuid.UUID)


def _json_encoder() -> Callable[[Any, int], Iterable[str]]:
    """The standard library's encoder, made once and not once per value, which costs more than to encode a small one."""
    encoder = json.JSONEncoder(default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: (encoder.encode(value),)
    # Without markers for circles: they are found by their depth.
    made: Callable[[Any, int], Iterable[str]] = make(
        None, _plain, json.encoder.encode_basestring, None, ":", ",", False, False, False
    )
    return made


_encode_json = _json_encoder()
