"""A model as an object: `handle.remote(x)` calls it and returns at once.

A handle holds no connection and no state, so it can be kept, shared between threads and loops, and
made anew for nothing. `handle.method` is another endpoint of the same model.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from jitney.calls import encode_call
from jitney.handle.frames import PRIORITIES, call_head
from jitney.handle.futures import AsyncCall, Call
from jitney.handle.streams import AsyncStream, Stream

if TYPE_CHECKING:
    from jitney.handle.session import Session

ENCODINGS = {"value": "", "json": "application/json", "bytes": "application/octet-stream"}


class Handle:
    """One endpoint of a model on a server."""

    def __init__(
        self,
        session: Session,
        model: str,
        version: str = "",
        endpoint: str = "",
        *,
        encoding: str = "value",
        timeout: float | None = None,
        priority: str = "interactive",
    ) -> None:
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, not {encoding!r}")
        if priority not in PRIORITIES:
            raise ValueError(f"priority must be one of {', '.join(PRIORITIES)}, not {priority!r}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        self._session = session
        self._names = (model, version, endpoint)
        self._encoding, self._timeout, self._priority = encoding, timeout, priority
        self._head = call_head(model, version, endpoint, ENCODINGS[encoding], timeout, priority == "bulk")

    def remote(self, *arguments: Any, **keywords: Any) -> AsyncCall | Call:
        """Calls the model with one item's arguments, and returns a future of its answer at once."""
        body = self._body(arguments, keywords)
        loop = _running_loop()
        if loop is None:
            background = self._session.background()
            call = Call(background.give_up)
            background.send(call, self._head, body)
            return call
        connection = self._session.connection(loop)
        future = AsyncCall(connection)
        connection.send(future, self._head, body)
        return future

    def stream(self, *arguments: Any, **keywords: Any) -> AsyncStream | Stream:
        """Calls a model that streams; the answer's pieces are there as soon as they are made."""
        body = self._body(arguments, keywords)
        loop = _running_loop()
        if loop is None:
            background = self._session.background()
            stream = Stream(background.give_up)
            background.send(stream, self._head, body)
            return stream
        connection = self._session.connection(loop)
        pieces = AsyncStream(connection)
        connection.send(pieces, self._head, body)
        return pieces

    def options(self, *, timeout: float | None = None, priority: str | None = None) -> Handle:
        """The same handle with a deadline, in seconds from the call's arrival, or another priority."""
        timeout = self._timeout if timeout is None else timeout
        return self._like(self._names[2], timeout, priority or self._priority)

    def configure(self, **options: Any) -> None:
        """Changes how batches of the model leave, for everybody and from the next batch on.

        Options are those of the decorator: `max_batch_size` (of this endpoint, on `handle.method`),
        `max_latency_ms`, `max_batch_delay_ms`, `policy`, `queue`; and weights of `tenants`.
        It waits for the server's answer; inside an event loop use `jitney.AsyncClient.configure`.
        """
        model, version, endpoint = self._names
        self._session.configure(model, version, endpoint=endpoint or None, **options)

    def __getattr__(self, name: str) -> Handle:
        """Another endpoint of the model."""
        if name.startswith("_"):
            raise AttributeError(name)
        handle = self._like(name, self._timeout, self._priority)
        self.__dict__[name] = handle  # The next look costs nothing.
        return handle

    def __repr__(self) -> str:
        model, version, endpoint = self._names
        return f"<jitney.Handle {model}{f'/{version}' if version else ''}{f'.{endpoint}' if endpoint else ''}>"

    def _like(self, endpoint: str, timeout: float | None, priority: str) -> Handle:
        model, version, _ = self._names
        return Handle(
            self._session, model, version, endpoint, encoding=self._encoding, timeout=timeout, priority=priority
        )

    def _body(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
        if self._encoding == "value":
            return encode_call(arguments, keywords)
        if keywords or len(arguments) != 1:
            raise TypeError(f"a handle with encoding={self._encoding!r} sends one argument, the request's body")
        return json.dumps(arguments[0]).encode() if self._encoding == "json" else bytes(arguments[0])


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
