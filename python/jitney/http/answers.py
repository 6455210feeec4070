"""From one item's output to a body and its content type.

Bytes stay bytes, text is text, everything else is JSON, arrays included, unless the client
accepts npy. NaN and infinities, which JSON does not have, are `null`. The form is chosen by the
value, so that it never depends on the other items of the batch.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from collections.abc import Callable, Iterable
from typing import Any

from jitney.values import array_formats
from jitney.values.containers import container_of

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
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return array_formats.to_plain(value)


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
