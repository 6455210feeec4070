"""An answer as HTTP carries it, where no server writes it: in unit tests, and behind the middleware of a service."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from jitney.call.errors import BadInput, describe, status_of
from jitney.call.request import Request
from jitney.http.request import HttpHeaders
from jitney.http.response import JSON, Response, encode


class Answer:
    """An HTTP answer: its status, its headers by their names in any case, and its body."""

    def __init__(self, status: int, headers: Iterable[tuple[str, str]], body: bytes | bytearray | memoryview) -> None:
        self.status = status
        self.headers = HttpHeaders(headers)
        self.content_type = self.headers.get("content-type", "")
        self.body = bytes(body)

    @classmethod
    def of(cls, response: Response, content_type: str) -> Answer:
        """The answer that an endpoint made."""
        return cls(response.status, response.head(content_type), response.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The value that the body is."""
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<Answer {self.status} {self.content_type} {self.body[:200]!r}>"


def answer_of(outcome: Any, request: Request, accept: str = "") -> Answer:
    """What an endpoint returned, with what it set about its answer."""
    response = outcome if isinstance(outcome, Response) else Response(outcome)
    content_type, body = encode(response.body, accept)
    chosen = Response(body, request.status or response.status, response.headers, response.media_type)
    chosen.headers += request.response_headers.items()
    return Answer.of(chosen, content_type)


def failed(error: BaseException) -> Answer:
    """The body of a failure, as the server sends it; it adds the type and the id of the request."""
    told: dict[str, Any] = {"code": status_of(error), "message": describe(error)}
    if isinstance(error, BadInput) and error.errors:
        told["errors"] = [{"field": field, "message": why} for field, why in error.errors]
    return Answer(told["code"], [("Content-Type", JSON)], json.dumps(told, ensure_ascii=False).encode(errors="replace"))
