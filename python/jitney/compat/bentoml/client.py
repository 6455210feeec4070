"""`bentoml.SyncHTTPClient` and `AsyncHTTPClient`: a service's APIs as methods, over HTTP.

They speak what BentoML's services speak, so they call services of either server. Values go as a JSON object, or as a
form where one of them is a file.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from jitney.compat.bentoml.answering import sent
from jitney.compat.bentoml.client_answers import JSON, async_pieces, failure_of, is_stream, names_of, result_of
from jitney.compat.bentoml.exceptions import BentoMLException, ServiceUnavailable
from jitney.compat.bentoml.forms import encode_form, is_file
from jitney.http.answers import encode_json

TIMEOUT_SECONDS = 30.0


class HTTPClient:
    """What both clients share."""

    def __init__(
        self,
        url: str,
        *,
        server_ready_timeout: float | None = None,
        token: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.url = url if "//" in url else f"http://{url}"
        self._parts = urllib.parse.urlsplit(self.url)
        self._timeout = timeout
        self.default_headers: dict[str, str] = {"Authorization": f"Bearer {token}"} if token else {}
        self._names: dict[str, list[str]] | None = None

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname or "127.0.0.1", self._parts.port, timeout=self._timeout)

    def _ask(
        self, method: str, path: str, body: bytes | None = None, content_type: str = JSON
    ) -> http.client.HTTPResponse:
        connection = self._connection()
        headers = {**self.default_headers, **({"Content-Type": content_type} if body is not None else {})}
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            return connection.getresponse()
        except OSError as error:
            connection.close()
            raise ServiceUnavailable(f"{self.url} does not answer: {error}") from None

    def _ready(self) -> bool:
        try:
            return self._ask("GET", "/readyz").status == HTTPStatus.OK
        except BentoMLException:
            return False

    def _post(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> http.client.HTTPResponse:
        given = {**self._by_name(name, args), **kwargs}
        path = name if name.startswith("/") else f"/{name}"
        if any(is_file(value) for value in given.values()):
            content_type, body = encode_form({key: sent(value) for key, value in given.items()})
        else:
            content_type, body = JSON, encode_json(given)
        response = self._ask("POST", path, body, content_type)
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise failure_of(response, path)
        return response

    def _by_name(self, name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """Arguments that were given by position, with the names that the service's description has."""
        if not args:
            return {}
        if self._names is None:
            self._names = self._describe()
        names = self._names.get(name.lstrip("/"))
        if names is None or len(args) > len(names):
            raise BentoMLException(f"{name} does not tell the names of its parameters; give them by name")
        return dict(zip(names, args))

    def _describe(self) -> dict[str, list[str]]:
        for path in ("/openapi.json", "/docs.json"):
            response = self._ask("GET", path)
            if response.status == HTTPStatus.OK:
                return names_of(json.loads(response.read()))
        return {}


class SyncHTTPClient(HTTPClient):
    """Calls a service and waits: `client.summarize(text="...")`."""

    def is_ready(self, timeout: float | None = None) -> bool:
        """Whether the service takes requests."""
        return self._ready()

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls an API by its name."""
        return result_of(self._post(name, args, kwargs))

    def close(self) -> None:
        """Ends it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.call(name, *args, **kwargs)

    def __enter__(self) -> SyncHTTPClient:
        return self

    def __exit__(self, *details: Any) -> None:
        self.close()


class AsyncHTTPClient(HTTPClient):
    """The same with methods to await. A stream is awaited, too, and then iterated with `async for`."""

    async def is_ready(self, timeout: float | None = None) -> bool:
        """Whether the service takes requests."""
        return await asyncio.to_thread(self._ready)

    async def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls an API by its name."""
        response = await asyncio.to_thread(self._post, name, args, kwargs)
        if is_stream(response):
            return async_pieces(response)
        return await asyncio.to_thread(result_of, response)

    async def close(self) -> None:
        """Ends it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.call(name, *args, **kwargs)

    async def __aenter__(self) -> AsyncHTTPClient:
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self.close()


class RemoteService(SyncHTTPClient):
    """A service on another server, for `bentoml.depends(url=...)`."""

    @property
    def to_async(self) -> AsyncHTTPClient:
        """The same with methods to await."""
        return AsyncHTTPClient(self.url, timeout=self._timeout)

    @property
    def to_sync(self) -> SyncHTTPClient:
        """The same."""
        return self
