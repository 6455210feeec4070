"""From one item's output to a body and its content type.

Bytes stay bytes, text is text, everything else is JSON, arrays included, unless the client
accepts npy. The form is chosen by the value, so that it never depends on the other items of the batch.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from typing import Any

from jitney.containers import container_of
from jitney.http import tensors

JSON, TEXT, BYTES = "application/json", "text/plain; charset=utf-8", "application/octet-stream"


def encode(output: Any, accept: str = "") -> tuple[str, bytes | bytearray | memoryview]:
    """The content type and the body of an output."""
    if isinstance(output, str):
        return TEXT, output.encode()
    if isinstance(output, (bytes, bytearray)):
        return BYTES, output
    if isinstance(output, memoryview):
        return BYTES, output.tobytes()
    if tensors.NPY_TYPE in accept and container_of(output) is not None:
        return tensors.NPY_TYPE, tensors.write_npy(output)
    return JSON, _encode_json(output).encode()


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
    return tensors.to_plain(value)


_encode_json = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":")).encode
