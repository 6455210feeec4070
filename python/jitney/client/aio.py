"""The same client for event loops, over asyncio's streams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

from jitney.client import requests
from jitney.client.pool import Pool
from jitney.client.replies import Reply
from jitney.client.requests import Request
from jitney.client.retry import Retry
from jitney.handle.frames import disconnected, read_body
from jitney.handle.session import read_url


class AsyncClient:
    """Predictions at `url`, management at `management_url` (the same address unless given)."""

    def __init__(
        self,
        url: str,
        management_url: str | None = None,
        *,
        token: str | None = None,
        management_token: str | None = None,
        timeout: float = 60.0,
        retry: Retry | None = None,
        tls: ssl.SSLContext | None = None,
        connections: int = 100,
    ) -> None:
        inference = read_url(url, token, tls)
        management = read_url(management_url or url, management_token or token, tls)
        self._pools = (Pool(inference, connections), Pool(management, connections))
        self._timeout = timeout
        self._retry = retry or Retry()

    async def predict(
        self,
        model: str,
        data: Any = b"",
        *,
        version: str | None = None,
        endpoint: str | None = None,
        timeout: float | None = None,
        priority: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """A model's answer to one request. `timeout` is the deadline the server is told."""
        return await self._ask(requests.predict(model, data, version, endpoint, timeout, priority, headers))

    async def stream(self, model: str, data: Any = b"", *, endpoint: str | None = None) -> AsyncIterator[Any]:
        """A model's answer as it is made, piece by piece: text or bytes."""
        request = requests.predict(model, data, None, endpoint, None, None, None)
        async with self._pools[0].ask(request) as exchange:
            if exchange.status >= 400:
                raise (await exchange.whole()).error()
            content_type = exchange.headers.get("content-type", "")
            async for piece in exchange.pieces():
                yield read_body(piece, content_type if content_type.startswith("text/") else "")

    async def ping(self) -> bool:
        """Whether the server is there and well."""
        try:
            return (await self._once(requests.ping())).status == 200
        except (OSError, asyncio.TimeoutError):
            return False

    async def models(self) -> dict[str, str]:
        """Names of all models, each with where it came from."""
        found: dict[str, str] = {}
        token: str | None = None
        while True:
            page = await self._ask(requests.models(None, token))
            found.update({one["modelName"]: one["modelUrl"] for one in page["models"]})
            token = page.get("nextPageToken")
            if token is None:
                return found

    async def describe(self, model: str, version: str | None = None) -> list[dict[str, Any]]:
        """What a model's versions are and how they do."""
        return await self._ask(requests.describe(model, version))  # type: ignore[no-any-return]

    async def register(self, url: str, **options: Any) -> str:
        """Registers an archive; options as in TorchServe's API (`initial_workers`, `batch_size`, ...)."""
        return await self._status(requests.register(url, options))

    async def scale(self, model: str, version: str | None = None, **options: Any) -> str:
        """Changes the number of workers (`min_worker`, `max_worker`, `synchronous`, ...)."""
        return await self._status(requests.scale(model, version, options))

    async def unregister(self, model: str, version: str | None = None) -> str:
        """Ends a model, or one version of it."""
        return await self._status(requests.unregister(model, version))

    async def set_default(self, model: str, version: str) -> str:
        """Lets another version answer by default."""
        return await self._status(requests.set_default(model, version))

    async def close(self) -> None:
        """Ends all connections."""
        for pool in self._pools:
            pool.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _status(self, request: Request) -> str:
        return str((await self._ask(request))["status"])

    async def _ask(self, request: Request) -> Any:
        """Asks, and asks again where the rules say so."""
        attempt = 1
        while True:
            try:
                reply = await self._once(request)
            except asyncio.TimeoutError:
                raise disconnected(f"{request.method} {request.path}: no answer in {self._timeout} s") from None
            except OSError as error:
                pause = self._retry.after_error(request, error, attempt)
                if pause is None:
                    raise disconnected(f"{request.method} {request.path}: {error or type(error).__name__}") from error
            else:
                pause = self._retry.after_reply(reply, attempt)
                if pause is None:
                    return reply.value()
            await asyncio.sleep(pause)
            attempt += 1

    async def _once(self, request: Request) -> Reply:
        return await asyncio.wait_for(self._whole(request), self._timeout)

    async def _whole(self, request: Request) -> Reply:
        async with self._pools[request.management].ask(request) as exchange:
            return await exchange.whole()
