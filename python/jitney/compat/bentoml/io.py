"""`bentoml.io`: how the functions of a legacy service read their input and write their output."""

from __future__ import annotations

import io
import json
import mimetypes
from collections.abc import Sequence
from typing import Any

from jitney.call.request import Request
from jitney.compat.bentoml.descriptor import IODescriptor, Posted
from jitney.compat.bentoml.exceptions import BadInput
from jitney.compat.bentoml.tables import NumpyNdarray, PandasDataFrame, PandasSeries
from jitney.values.images import open_image

__all__ = [
    "JSON", "File", "IODescriptor", "Image", "Multipart", "NumpyNdarray", "PandasDataFrame", "PandasSeries", "Text",
]  # fmt: skip


class JSON(IODescriptor):
    """Any JSON value; with `pydantic_model` an object of that model."""

    def __init__(
        self, *, pydantic_model: Any = None, validate_json: bool | None = None, json_encoder: Any = None
    ) -> None:
        super().__init__()
        self._model, self._encoder = pydantic_model, json_encoder

    def read(self, posted: Posted) -> Any:
        value = posted.parsed()
        if self._model is None:
            return value
        try:
            read = getattr(self._model, "model_validate", None) or self._model.parse_obj
            return read(value)
        except ValueError as error:
            raise BadInput(f"the JSON does not fit: {error}") from None

    def write(self, value: Any, request: Request) -> Any:
        if self._encoder is not None:
            return self.typed(json.dumps(value, cls=self._encoder, ensure_ascii=False, separators=(",", ":")), request)
        return super().write(value, request)


class Text(IODescriptor):
    """Text."""

    mime_type = "text/plain"

    def read(self, posted: Posted) -> Any:
        return posted.raw().decode()

    def write(self, value: Any, request: Request) -> Any:
        return self.typed(value, request)


class File(IODescriptor):
    """A file: the function gets something to read from, and returns that, or bytes."""

    mime_type = "application/octet-stream"

    def __init__(self, kind: str = "binaryio", mime_type: str | None = None) -> None:
        super().__init__()
        self.mime_type = mime_type or self.mime_type

    def read(self, posted: Posted) -> Any:
        return io.BytesIO(posted.raw())

    def write(self, value: Any, request: Request) -> Any:
        name = getattr(value, "name", None)
        content = value if isinstance(value, (bytes, bytearray)) else value.read()
        guessed = mimetypes.guess_type(str(name))[0] if name else None
        if guessed and self.mime_type == File.mime_type:
            request.response_headers.setdefault("Content-Type", guessed)
        return self.typed(bytes(content), request)


class Image(IODescriptor):
    """An image of Pillow's."""

    def __init__(
        self,
        pilmode: str | None = "RGB",
        mime_type: str = "image/jpeg",
        *,
        allowed_mime_types: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._mode, self.mime_type = pilmode, mime_type
        self._allowed = allowed_mime_types

    def read(self, posted: Posted) -> Any:
        import PIL.Image  # noqa: F401 - it is what opens them

        try:
            image = open_image(posted.raw())
        except Exception as error:
            raise BadInput(f"the image cannot be read: {error}") from None
        return image.convert(self._mode) if self._mode else image

    def write(self, value: Any, request: Request) -> Any:
        import PIL.Image

        image = value if isinstance(value, PIL.Image.Image) else PIL.Image.fromarray(value)
        buffer = io.BytesIO()
        image.save(buffer, format=self.mime_type.partition("/")[2].upper())
        return self.typed(buffer.getvalue(), request)


class Multipart(IODescriptor):
    """A form of several values; the function gets each by name."""

    mime_type = "multipart/form-data"

    def __init__(self, **inputs: IODescriptor) -> None:
        super().__init__()
        self._inputs = inputs

    def read(self, posted: Posted) -> Any:
        return {name: one.read(posted.field(name)) for name, one in self._inputs.items()}

    def write(self, value: Any, request: Request) -> Any:
        boundary = f"jitney-{request.id or 'form'}"
        request.response_headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
        parts = []
        for name, one in self._inputs.items():
            inner = Request()
            body = one.write(value[name], inner)
            kind = inner.response_headers.get("Content-Type", one.mime_type)
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {kind}\r\n\r\n'
            parts.append(head.encode() + body + b"\r\n")
        return b"".join([*parts, f"--{boundary}--\r\n".encode()])
