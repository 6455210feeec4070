"""What a method returned, as it goes out: files and images become bytes with their media type."""

from __future__ import annotations

import io
import mimetypes
import sys
from pathlib import Path
from typing import Any

from jitney.call.request import Request
from jitney.compat.bentoml.validators import ContentType
from jitney.files.images import open_image
from jitney.values.convert import converter_for

EVENT_STREAM = "text/event-stream; charset=utf-8"
"""The media type of BentoML's streams."""
SHOWN = ("image/", "audio/", "video/")
"""What a browser shows and does not save."""
IMAGE_FORMAT = "PNG"
"""For images that do not know which file they came from."""


def outgoing(result: Any, request: Request, notes: tuple[Any, ...]) -> Any:
    """An answer with its media type set, where it is a file or an image."""
    content_type = next((one.content_type for one in notes if isinstance(one, ContentType)), None)
    if isinstance(result, Path):
        return _file(result, request, content_type)
    if is_image(result):
        return _image(result, request, content_type)
    if content_type is not None and isinstance(result, (bytes, bytearray)):
        request.response_headers.setdefault("Content-Type", content_type)
    return result


def may_be_file(hint: Any) -> bool:
    """Whether answers of this hint need to be looked at: all but those that are known to be something else."""
    return hint is Any or hint is Path or hint is bytes or is_image_type(hint)


def sent(value: Any) -> Any:
    """An argument of a call to another service."""
    if isinstance(value, Path):
        return value.read_bytes()
    if is_image(value):
        return _encoded(value, getattr(value, "format", None) or IMAGE_FORMAT)
    return value


def received(value: Any, hint: Any, directory: Any) -> Any:
    """The answer of another service as the method's hint says; `directory()` is where files may be put."""
    if hint is Any or value is None:
        return value
    if hint is Path and isinstance(value, (bytes, bytearray)):
        path = Path(directory()) / "answer"
        path.write_bytes(value)
        return path
    if is_image_type(hint) and isinstance(value, (bytes, bytearray)):
        return open_image(bytes(value))
    try:
        return converter_for(hint)(value)
    except Exception:  # What the service returned is not what its hint says; the caller gets it as it is.
        return value


def is_image(value: Any) -> bool:
    """Whether it is an image of Pillow's, which nobody has to have."""
    return is_image_type(type(value))


def is_image_type(hint: Any) -> bool:
    """Whether a hint is Pillow's image."""
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return image is not None and isinstance(hint, type) and issubclass(hint, image)


def _file(path: Path, request: Request, content_type: str | None) -> bytes:
    headers = request.response_headers
    guessed = content_type or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    headers.setdefault("Content-Type", f"{guessed}; charset=utf-8" if guessed.startswith("text/") else guessed)
    shown = "inline" if guessed.startswith(SHOWN) else "attachment"
    headers.setdefault("Content-Disposition", f'{shown}; filename="{path.name}"')
    return path.read_bytes()


def _image(image: Any, request: Request, content_type: str | None) -> bytes:
    wanted = content_type.partition("/")[2].upper() if content_type else getattr(image, "format", None)
    kind = wanted if wanted and wanted != "*" else IMAGE_FORMAT
    request.response_headers.setdefault("Content-Type", f"image/{kind.lower()}")
    return _encoded(image, kind)


def _encoded(image: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind)
    return buffer.getvalue()
