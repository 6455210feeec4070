"""An answer with a status and headers of its own, whole or in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

Pairs = Iterable[tuple[str, str]]


class Response:
    """What an endpoint may return instead of a plain value; a generator may yield one first, for its head.

    The body is what endpoints return: bytes, text, or anything that becomes JSON. A generator is sent piece by piece.
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


def stream_of(result: Any) -> Response | None:
    """What was returned, if it is to be sent in pieces."""
    if isinstance(result, Response):
        return result if result.is_stream else None
    return Response(result) if isinstance(result, (Iterator, AsyncIterator)) else None


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
