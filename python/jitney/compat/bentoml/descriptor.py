"""What a client of a function sent, and what every descriptor of `bentoml.io` can do with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jitney.call.request import Request
from jitney.compat.bentoml.exceptions import BadInput
from jitney.http.answers import encode_json


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
