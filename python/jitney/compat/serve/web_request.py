"""The request that `__call__` gets over HTTP: Starlette's where it is installed, else a small one like it."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from typing import Any

from jitney.http.request import HttpHeaders


def web_request(scope: Mapping[str, Any], receive: Any, send: Any = None) -> Any:
    """The request of an ASGI scope."""
    try:
        from starlette.requests import Request
    except ImportError:
        return WebRequest(scope, receive)
    return Request(scope, receive, send)


class WebRequest:
    """The part of Starlette's request that applications of Ray Serve use."""

    def __init__(self, scope: Mapping[str, Any], receive: Any) -> None:
        self.scope = scope
        self._receive = receive
        self._body: bytes | None = None
        self.method: str = scope["method"]
        self.headers = HttpHeaders([(name.decode("latin-1"), one.decode("latin-1")) for name, one in scope["headers"]])
        self.query_params = QueryParams(scope["query_string"].decode("latin-1"))
        self.path_params: dict[str, Any] = {}
        self.client = scope.get("client")
        self.url = WebUrl(scope, self.headers.get("host", ""))

    async def body(self) -> bytes:
        """The body."""
        if self._body is None:
            parts = [part async for part in self.stream()]
            self._body = b"".join(parts)
        return self._body

    async def stream(self) -> AsyncIterator[bytes]:
        """The body in pieces."""
        more = True
        while more:
            message = await self._receive()
            more = message.get("more_body", False)
            yield message.get("body", b"")

    async def json(self) -> Any:
        """The body as JSON."""
        return json.loads(await self.body())

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies by name."""
        pairs = (one.partition("=") for one in self.headers.get("cookie", "").split(";") if "=" in one)
        return {name.strip(): value.strip() for name, _, value in pairs}


class QueryParams(dict[str, str]):
    """The fields of a query; of several of one name the last."""

    def __init__(self, query: str) -> None:
        self.pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
        super().__init__(self.pairs)

    def getlist(self, name: str) -> list[str]:
        """Every value of one name."""
        return [value for known, value in self.pairs if known == name]

    def multi_items(self) -> list[tuple[str, str]]:
        """All of them."""
        return self.pairs


class WebUrl:
    """Where a request went."""

    def __init__(self, scope: Mapping[str, Any], host: str) -> None:
        self.scheme: str = scope.get("scheme", "http")
        self.netloc = host
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("latin-1")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}" + (f"?{self.query}" if self.query else "")
