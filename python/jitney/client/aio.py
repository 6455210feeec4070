"""The same client for event loops, over asyncio's streams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from jitney.call.errors import disconnected
from jitney.client import requests
from jitney.client.methods import ClientMethods, Conversation, Step
from jitney.client.pool import Pool
from jitney.client.requests import ClientRequest, PredictOptions, Reply, Retry
from jitney.wire.address import read_url
from jitney.wire.calls import read_body

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncClient(
    ClientMethods[
        Coroutine[Any, Any, Any],
        Coroutine[Any, Any, str],
        Coroutine[Any, Any, dict[str, str]],
        Coroutine[Any, Any, list[dict[str, Any]]],
    ]
):
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
        super().__init__(retry)
        inference = read_url(url, token, tls)
        management = read_url(management_url or url, management_token or token, tls)
        self._pools = (Pool(inference, connections), Pool(management, connections))
        self._timeout = timeout

    async def stream(self, model: str, data: Any = b"", **options: Unpack[PredictOptions]) -> AsyncIterator[Any]:
        """A model's answer as it is made, piece by piece: text or bytes. Options are those of `predict`."""
        request = requests.predict(model, data, **options)
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

    async def close(self) -> None:
        """Ends all connections."""
        for pool in self._pools:
            pool.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
