"""The same client for event loops, over asyncio's streams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from jitney.call.errors import disconnected
from jitney.client import requests
from jitney.client.conversation import Conversation, Step, list_models, request_status, request_value
from jitney.client.pool import Pool
from jitney.client.replies import Reply
from jitney.client.requests import ClientRequest
from jitney.client.retry import Retry
from jitney.wire.address import read_url
from jitney.wire.call_options import CallOptions
from jitney.wire.calls import read_body

T = TypeVar("T")


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
        tenant: str | None = None,
        cost: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """A model's answer to one request. `timeout` is the deadline that the server gets; it and
        the other options are those of `Handle.options`.
        """
        options = CallOptions(timeout, priority, tenant, cost)
        return await self._request(requests.predict(model, data, version, endpoint, options, headers))

    async def stream(
        self,
        model: str,
        data: Any = b"",
        *,
        version: str | None = None,
        endpoint: str | None = None,
        timeout: float | None = None,
        priority: str | None = None,
        tenant: str | None = None,
        cost: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Any]:
        """A model's answer as it is made, piece by piece: text or bytes."""
        options = CallOptions(timeout, priority, tenant, cost)
        request = requests.predict(model, data, version, endpoint, options, headers)
        async with self._pools[0].ask(request) as exchange:
            if exchange.status >= 400:
                raise (await exchange.whole()).error()
            content_type = exchange.headers.get("content-type", "")
            async for piece in exchange.pieces():
                yield read_body(piece, content_type if content_type.startswith("text/") else "")

    async def ping(self) -> bool:
        """Whether the server is reachable and healthy."""
        try:
            return (await self._once(requests.ping())).status == 200
        except (OSError, asyncio.TimeoutError):
            return False

    async def models(self) -> dict[str, str]:
        """Names of all models, each with its URL."""
        return await self._run(list_models(self._retry))

    async def describe(self, model: str, version: str | None = None) -> list[dict[str, Any]]:
        """The description and state of a model's versions."""
        found: list[dict[str, Any]] = await self._request(requests.describe(model, version))
        return found

    async def register(self, url: str, **options: Any) -> str:
        """Registers an archive; options as in TorchServe's API (`initial_workers`, `batch_size`, ...)."""
        return await self._status(requests.register(url, options))

    async def scale(self, model: str, version: str | None = None, **options: Any) -> str:
        """Changes the number of workers (`min_worker`, `max_worker`, `synchronous`, ...)."""
        return await self._status(requests.scale(model, version, options))

    async def configure(self, model: str, version: str | None = None, **options: Any) -> str:
        """Changes the batching of a served model at once, with the names of the decorators' options:
        `max_batch_size` (with `endpoint` for one of several), `max_latency_ms`, `max_batch_delay_ms`,
        `policy`, `queue`, and weights of `tenants`.
        """
        return await self._status(requests.configure(model, version, **options))

    async def unregister(self, model: str, version: str | None = None) -> str:
        """Ends a model, or one version of it."""
        return await self._status(requests.unregister(model, version))

    async def set_default(self, model: str, version: str) -> str:
        """Changes the default version."""
        return await self._status(requests.set_default(model, version))

    async def close(self) -> None:
        """Ends all connections."""
        for pool in self._pools:
            pool.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _status(self, request: ClientRequest) -> str:
        return await self._run(request_status(request, self._retry))

    async def _request(self, request: ClientRequest) -> Any:
        return await self._run(request_value(request, self._retry))

    async def _run(self, conversation: Conversation[T]) -> T:
        outcome: Reply | OSError | None = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = await self._step(step)

    async def _step(self, step: Step) -> Reply | OSError | None:
        """Sends the request, or pauses."""
        if isinstance(step, ClientRequest):
            try:
                return await self._once(step)
            except asyncio.TimeoutError:
                raise disconnected(f"{step.method} {step.path}: no answer in {self._timeout} s") from None
            except OSError as error:
                return error
        await asyncio.sleep(step)
        return None

    async def _once(self, request: ClientRequest) -> Reply:
        return await asyncio.wait_for(self._whole(request), self._timeout)

    async def _whole(self, request: ClientRequest) -> Reply:
        async with self._pools[request.management].ask(request) as exchange:
            return await exchange.whole()
