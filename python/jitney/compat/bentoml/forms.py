"""Forms with files, as a client sends them."""

from __future__ import annotations

import mimetypes
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jitney.compat.bentoml.answering import is_image
from jitney.http.answers import encode_json


def is_file(value: Any) -> bool:
    """Whether a value is sent as a file; a list of files is sent as several."""
    if isinstance(value, (list, tuple)) and value:
        return all(is_file(one) for one in value)
    return isinstance(value, (Path, bytes, bytearray)) or is_image(value) or hasattr(value, "read")


def encode_form(fields: Mapping[str, Any]) -> tuple[str, bytes]:
    """The content type and the body of a form."""
    boundary = secrets.token_hex(16)
    several = {name: isinstance(value, (list, tuple)) and is_file(value) for name, value in fields.items()}
    parts = [
        f"--{boundary}\r\n".encode() + _part(name, one)
        for name, value in fields.items()
        for one in (value if several[name] else [value])
    ]
    return f"multipart/form-data; boundary={boundary}", b"".join([*parts, f"--{boundary}--\r\n".encode()])


def _part(name: str, value: Any) -> bytes:
    file_name = Path(str(getattr(value, "name", "") or name)).name
    content = value.read() if hasattr(value, "read") else value.read_bytes() if isinstance(value, Path) else value
    if isinstance(content, (bytes, bytearray)):
        kind = mimetypes.guess_type(file_name)[0] or "application/octet-stream"
        head = f'Content-Disposition: form-data; name="{name}"; filename="{file_name}"\r\nContent-Type: {kind}\r\n\r\n'
        return head.encode() + bytes(content) + b"\r\n"
    text = content.encode() if isinstance(content, str) else encode_json(content)
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + text + b"\r\n"
