"""`bentoml.io`: how the functions of a legacy service read their input and write their output.

Every descriptor reads what a client of a function sent; those of arrays, frames and series know their libraries.
"""

from __future__ import annotations

import io
import json
import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any

from jitney.call.request import Request
from jitney.compat.bentoml.exceptions import BadInput
from jitney.files.images import open_image
from jitney.files.tables import PARQUET, read_frame, read_json_frame
from jitney.http.response import encode_json


class Posted:
    """What a client sent: a body, or the fields of a form."""

    def __init__(self, given: Mapping[str, Any], request: Request) -> None:
        self.fields = {name: value for name, value in given.items() if name != "body"}
        self.body = given.get("body")
        self.request = request

    @property
    def content_type(self) -> str:
        """The body's media type."""
        return str(self.request.headers.get("content-type", "")).partition(";")[0].strip().lower()

    def field(self, name: str) -> Posted:
        """One field of a form, as if it were the body."""
        if name not in self.fields:
            raise BadInput(f"the form has no field {name!r}")
        return Posted({"body": self.fields[name]}, self.request)

    def whole(self) -> Any:
        """The body; of a form with one field its value."""
        if self.body is None and len(self.fields) == 1:
            return next(iter(self.fields.values()))
        return self.body

    def raw(self) -> bytes:
        """The same as bytes."""
        value = self.whole()
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        return b"" if value is None else json.dumps(value).encode()

    def parsed(self) -> Any:
        """The same as JSON."""
        value = self.whole()
        if value is None and self.fields:
            return dict(self.fields)
        if not isinstance(value, (str, bytes, bytearray, memoryview)):
            return value
        try:
            return json.loads(value if isinstance(value, str) else bytes(value))
        except ValueError as error:
            raise BadInput(f"expected JSON: {error}") from None


class IODescriptor:
    """How one value is read and written."""

    mime_type = "application/json"

    def __init__(self) -> None:
        self.sample: Any = None

    def read(self, posted: Posted) -> Any:
        """What the function gets."""
        raise NotImplementedError

    def write(self, value: Any, request: Request) -> Any:
        """What the client gets."""
        return self.typed(encode_json(value), request)

    def typed(self, body: bytes | str, request: Request) -> bytes:
        """A body with this media type, unless the function has set another."""
        if not any(name.lower() == "content-type" for name in request.response_headers):
            request.response_headers["Content-Type"] = self.mime_type
        return body.encode() if isinstance(body, str) else body

    @classmethod
    def from_sample(cls, sample: Any, **options: Any) -> IODescriptor:
        """A descriptor with an example."""
        made = cls(**options)
        made.sample = sample
        return made


class NumpyNdarray(IODescriptor):
    """A numpy array; nested lists in JSON."""

    def __init__(
        self, dtype: Any = None, enforce_dtype: bool = False, shape: Sequence[int] | None = None,
        enforce_shape: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._dtype, self._enforce_dtype = dtype, enforce_dtype
        self._shape, self._enforce_shape = shape, enforce_shape

    def read(self, posted: Posted) -> Any:
        import numpy

        try:
            array = numpy.array(posted.parsed(), dtype=self._dtype)
        except ValueError as error:
            if self._enforce_dtype or self._dtype is None:
                raise BadInput(f"the numbers do not fit: {error}") from None
            array = numpy.array(posted.parsed())
        if array.dtype.hasobject:
            raise BadInput("the rows differ in length or contain values that are not numbers")
        return self._shaped(array)

    def _shaped(self, array: Any) -> Any:
        if self._shape is None:
            return array
        fits = len(self._shape) == array.ndim and all(want in (-1, got) for want, got in zip(self._shape, array.shape))
        if fits:
            return array
        if self._enforce_shape:
            raise BadInput(f"expected an array of shape {tuple(self._shape)}, got {array.shape}")
        try:
            return array.reshape(self._shape)
        except ValueError:
            return array

    def write(self, value: Any, request: Request) -> Any:
        import numpy

        return super().write(numpy.asarray(value), request)


class PandasDataFrame(IODescriptor):
    """A pandas frame; in JSON (as `orient` says), CSV or Parquet."""

    def __init__(
        self, orient: str = "records", columns: Sequence[str] | None = None, apply_column_names: bool = False,
        dtype: Any = None, enforce_dtype: bool = False, shape: Sequence[int] | None = None, enforce_shape: bool = False,
        default_format: str = "json",
    ) -> None:  # fmt: skip
        super().__init__()
        self._orient, self._columns, self._apply = orient, columns, apply_column_names
        self._dtype, self._format = dtype, default_format

    def read(self, posted: Posted) -> Any:
        import pandas  # noqa: F401 - it is what reads them

        kind = posted.content_type
        try:
            if "csv" in kind or "parquet" in kind or posted.raw()[:4] == PARQUET:
                frame = read_frame(posted.raw())
            else:
                frame = read_json_frame(posted.parsed(), self._orient, self._dtype or True)
        except ValueError as error:
            raise BadInput(f"the frame cannot be read: {error}") from None
        if self._columns and self._apply:
            frame.columns = list(self._columns)
        return frame

    def write(self, value: Any, request: Request) -> Any:
        return self.typed(value.to_json(orient=self._orient), request)


class PandasSeries(PandasDataFrame):
    """A pandas series."""

    def read(self, posted: Posted) -> Any:
        import pandas

        return pandas.Series(posted.parsed(), dtype=self._dtype)


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
