"""An ASGI application (FastAPI, Starlette, any other) as a model: `jitney serve app.py:served`.

Requests below its mount reach it as they came. Its lifespan begins before the worker serves and ends with the worker,
in the event loop in which requests run. An answer in one piece is sent as one; longer ones are streams.

The application runs in a task of its own, so that it may go on after its answer is complete, as background tasks of
frameworks do. What it sends waits in a queue of few pieces: an application is no faster than its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from jitney.definition.decorators import NOTE, Note
from jitney.definition.options import Options, make_options
from jitney.http.request import HttpRequest
from jitney.http.response import Response

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
NO_ROUTE, NOT_IMPLEMENTED = (403, 404, 405, 426), 501
PIECES_MAX = 16
"""Pieces of an answer that wait to be sent."""
NO_WEBSOCKETS = (
    "WebSockets are not served: let the answer come in pieces (a generator or a streaming response), and send what the "
    "client says next with its next request"
)
VERSIONS = {"version": "3.0", "spec_version": "2.4"}

_running: set[asyncio.Future[None]] = set()
"""Applications that are at work, so that the event loop does not forget them."""


class AsgiLifespan:
    """The lifespan of an application; one without it is served all the same."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._to_app: asyncio.Queue[Message] = asyncio.Queue(2)
        self._from_app: asyncio.Queue[Message] = asyncio.Queue(2)
        self.state: dict[str, Any] = {}
        """What the application keeps; every request gets a copy."""

    async def startup(self) -> None:
        """Begins it; raises what the application says about its failure."""
        scope = {"type": "lifespan", "asgi": VERSIONS, "state": self.state}
        self._task = asyncio.ensure_future(self._app(scope, self._to_app.get, self._from_app.put))
        told = await self._tell("lifespan.startup")
        if told is not None and told["type"] == "lifespan.startup.failed":
            raise RuntimeError(f"the application did not start: {told.get('message', '')}")

    async def shutdown(self) -> None:
        """Ends it."""
        if self._task is None or self._task.done():
            return
        told = await self._tell("lifespan.shutdown")
        if told is not None and told["type"] == "lifespan.shutdown.failed":
            logger.error("the application did not end well: %s", told.get("message", ""))
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task

    async def _tell(self, kind: str) -> Message | None:
        """What the application answers; None if it has no lifespan."""
        assert self._task is not None
        await self._to_app.put({"type": kind})
        answer = asyncio.ensure_future(self._from_app.get())
        await asyncio.wait((answer, self._task), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        answer.cancel()
        error = None if self._task.cancelled() else self._task.exception()
        if error is not None:
            logger.debug("the application has no lifespan: %r", error)
        return None


class AsgiExchange:
    """One request, and what the application sends in answer."""

    def __init__(self, request: HttpRequest, state: dict[str, Any]) -> None:
        self._scope = scope_of(request, state)
        self._body: bytes | None = request.body
        self._sent: asyncio.Queue[Message] = asyncio.Queue(PIECES_MAX)
        self._gone = asyncio.Event()

    async def run(self, app: Any) -> Response:
        """The application's answer: whole, or a stream that goes on."""
        task = asyncio.ensure_future(app(self._scope, self._receive, self._sent.put))
        _running.add(task)
        task.add_done_callback(_running.discard)
        try:
            start = await self._next(task)
            if start is None or start["type"] != "http.response.start":
                raise RuntimeError("the application ended without an answer")
            status, headers = start["status"], [(_text(name), _text(value)) for name, value in start.get("headers", ())]
            first = await self._next(task)
        except BaseException:
            self._end(task)
            raise
        body = bytes(first.get("body", b"")) if first is not None else b""
        if first is None or not first.get("more_body", False):
            self._gone.set()
            task.add_done_callback(_log_failure)
            return Response(body, status, headers)
        return Response(self._pieces(task, body), status, headers)

    async def _pieces(self, task: asyncio.Future[None], first: bytes) -> AsyncIterator[bytes]:
        complete = False
        try:
            if first:
                yield first
            while not complete:
                message = await self._next(task)
                complete = message is None or not message.get("more_body", False)
                body = bytes(message.get("body", b"")) if message is not None else b""
                if body:
                    yield body
        finally:
            self._gone.set()
            if complete:
                task.add_done_callback(_log_failure)
            else:  # The client has gone, or the application failed.
                self._end(task)

    async def _next(self, task: asyncio.Future[None]) -> Message | None:
        """What the application sends next; None if it has ended. Its failure is raised."""
        if self._sent.empty() and not task.done():
            message = asyncio.ensure_future(self._sent.get())
            try:
                await asyncio.wait((message, task), return_when=asyncio.FIRST_COMPLETED)
                if message.done():
                    return message.result()
            finally:
                message.cancel()
        if not self._sent.empty():
            return self._sent.get_nowait()
        task.result()
        return None

    def _end(self, task: asyncio.Future[None]) -> None:
        self._gone.set()
        task.cancel()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}


class AsgiModel:
    """The model of an ASGI application. Classes of their own may hold one: call `setup`, `http` and `teardown`."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lifespan = AsgiLifespan(app)

    async def setup(self) -> None:
        """Begins the application's lifespan."""
        await self._lifespan.startup()

    async def teardown(self) -> None:
        """Ends it."""
        await self._lifespan.shutdown()

    async def http(self, request: HttpRequest) -> Response:
        """Answers one request."""
        return explained(request, await AsgiExchange(request, self._lifespan.state).run(self._app))

    setattr(http, NOTE, Note(Options(raw=True), "endpoint"))


def explained(request: HttpRequest, response: Response) -> Response:
    """An application's answer; to a client that asks for a WebSocket, and finds nothing, what to do instead."""
    if response.status in NO_ROUTE and request.headers.get("upgrade", "").lower() == "websocket":
        return Response(f"{NO_WEBSOCKETS}\n", NOT_IMPLEMENTED)
    return response


def asgi(app: Any, **options: Any) -> AsgiModel:
    """An ASGI application as a model; options are those of `jitney.model`. It is mounted at `/` by default, and named
    `app`."""
    model = AsgiModel(app)
    setattr(model, NOTE, Note(make_options("asgi", {"mount": "/", "name": "app", **options}), "model"))
    return model


def scope_of(request: HttpRequest, state: dict[str, Any]) -> dict[str, Any]:
    """A request as ASGI describes it."""
    headers = [(name.encode("latin-1"), _bytes(value)) for name, value in request.headers.pairs]
    host, _, port = request.headers.get("host", "").rpartition(":")
    server = (host, int(port)) if host and port.isdigit() else (host or port, None)
    return {
        "type": "http",
        "asgi": VERSIONS,
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.headers.get("x-forwarded-proto", "http"),
        "path": request.root_path + request.path,
        "raw_path": request.raw_path.encode("latin-1", "replace"),
        "query_string": _bytes(request.query_string),
        "root_path": request.root_path,
        "headers": headers,
        "client": request.client,
        "server": server,
        "state": dict(state),
    }


def _log_failure(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("the application failed after its answer", exc_info=task.exception())


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()
