"""A service as an ASGI application: web applications mounted beside its APIs, middleware around all of it, and
`to_asgi()` for tests without a server.

Middleware sees every request of a service. So a service that has some is one raw endpoint of the server, and its APIs
run behind it: no other path leads to them, and their rows are not joined with those of other requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.parser
import email.policy
import functools
import json
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from jitney.call.request import Request
from jitney.definition.definition import Endpoint, define
from jitney.execution.execution import Execution
from jitney.execution.grouping import Item
from jitney.execution.splitting import STREAMED
from jitney.http.answer import Answer, answer_of, failed
from jitney.http.arguments import BODY, BrokenJson, read
from jitney.http.request import HttpHeaders

MOUNTS = "__bentoml_asgi__"
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
NOT_FOUND = Answer(404, [("content-type", "application/json")], b'{"error":"Not Found"}')


def asgi_app(app: Any, *, path: str = "/", name: str | None = None) -> Callable[[Any], Any]:
    """Mounts an ASGI application beside the APIs of a service. Its routes may be methods of the class."""

    def decorate(target: Any) -> Any:
        if hasattr(target, "mount_asgi_app"):
            target.mount_asgi_app(app, path=path, name=name)
        else:
            setattr(target, MOUNTS, [*getattr(target, MOUNTS, ()), (path, app)])
        return target

    return decorate


class ServiceApp:
    """The APIs of a service, and what is mounted beside them."""

    def __init__(self, served: Any, apis: type | None, mounts: Mapping[str, Any]) -> None:
        self._served, self._apis = served, apis
        endpoints = () if apis is None else define(apis).endpoints
        routes = [(one, one.options.route_methods) for one in endpoints]
        self._routes = {(method, found[0]): one for one, found in routes if found for method in found[1]}
        self._mounts = sorted(mounts.items(), key=lambda one: -len(one[0]))

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(self._served, receive, send)
            return
        path = scope["path"]
        endpoint = self._routes.get((scope.get("method", ""), path))
        if endpoint is not None:
            await self._answer(endpoint, scope, await _body(receive), send)
            return
        for prefix, app in self._mounts:
            below = prefix.rstrip("/")
            if path == below or path.startswith(f"{below}/"):
                await app({**scope, "root_path": scope.get("root_path", "") + below}, receive, send)
                return
        await _send(send, NOT_FOUND)

    async def _answer(self, endpoint: Endpoint, scope: Any, body: bytes, send: Send) -> None:
        headers = HttpHeaders([(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]])
        request = Request(headers=headers, endpoint=endpoint.name)
        pieces: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.ensure_future(self._run(endpoint, _row(scope, headers, body), request, pieces))
        task.add_done_callback(lambda _: pieces.put_nowait(STREAMED))
        begun = False
        try:
            while (piece := await pieces.get()) is not STREAMED:
                part = answer_of(piece, request)
                if not begun:
                    await _begin(send, part)
                    begun = True
                await send({"type": "http.response.body", "body": part.body, "more_body": True})
            outcome = task.result()
        finally:
            task.cancel()
        if begun:
            await send({"type": "http.response.body", "body": b""})
        else:
            await _send(send, outcome if isinstance(outcome, Answer) else answer_of(outcome, request))

    async def _run(self, endpoint: Endpoint, row: dict[str, Any], request: Request, pieces: Any) -> Any:
        try:
            execution = Execution(endpoint, [Item(read(endpoint, row), request)])
            function = functools.partial(getattr(self._apis, str(endpoint.attribute)), self._served)
            await execution.run_async(function, lambda _, piece: pieces.put_nowait(piece))
            (outcome,) = execution.outcomes()
        except Exception as error:
            outcome = error
        return failed(outcome) if isinstance(outcome, BaseException) else outcome


def _row(scope: Any, headers: HttpHeaders, body: bytes) -> dict[str, Any]:
    """A request as an endpoint's arguments are read from it."""
    row: dict[str, Any] = dict(urllib.parse.parse_qsl(scope.get("query_string", b"").decode()))
    kind = headers.get("content-type", "")
    if kind.startswith("multipart/"):
        parser = email.parser.BytesParser(policy=email.policy.HTTP)
        form = parser.parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
        parts = [(one.get_param("name", header="content-disposition"), one) for one in form.iter_parts()]
        return {**row, **{str(name): one.get_payload(decode=True) for name, one in parts}}
    if kind.startswith("application/json") or not kind:
        try:
            return {**row, BODY: json.loads(body)} if body else row
        except (ValueError, RecursionError) as error:
            return {**row, BODY: BrokenJson.of(body, error)}
    return {**row, BODY: bytearray(body)}


async def _body(receive: Any) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _begin(send: Send, answer: Answer) -> None:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.pairs]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})


async def _send(send: Send, answer: Answer) -> None:
    await _begin(send, answer)
    await send({"type": "http.response.body", "body": answer.body})


async def _lifespan(served: Any, receive: Any, send: Send) -> None:
    """The hooks of a service around its life."""
    for name, hook in (("startup", served.setup), ("shutdown", served.teardown)):
        await receive()
        with contextlib.suppress(asyncio.CancelledError):
            done = hook()
            if asyncio.iscoroutine(done):
                await done
        await send({"type": f"lifespan.{name}.complete"})


def around(app: Any, middlewares: list[tuple[Any, dict[str, Any]]]) -> Any:
    """An application inside its middleware; what was added last is the outermost."""
    for kind, options in middlewares:
        app = kind(app, **options)
    return app
