"""HTTP of the replica that an application's requests come to: `__call__`, or the routes of an ASGI application, which
`@serve.ingress(app)` makes methods of the deployment.
"""

from __future__ import annotations

import copyreg
import importlib.util
import inspect
import logging
from collections.abc import Callable
from typing import Any

from jitney.compat.routes import bound_to
from jitney.compat.serve.context import enter_request, restore_request
from jitney.compat.serve.handle import CALL
from jitney.compat.serve.replica import Replica, is_generator
from jitney.compat.serve.web_request import web_request
from jitney.http.asgi import AsgiModel
from jitney.http.request import HttpRequest
from jitney.http.response import Response, encode, encode_json

logger = logging.getLogger("jitney.compat.serve")

JSON, TEXT, PLAIN = b"application/json", b"text/plain; charset=utf-8", b"text/plain"
Send = Callable[[dict[str, Any]], Any]


class HttpReplica(Replica):
    """A replica that answers HTTP."""

    async def setup(self) -> None:
        await super().setup()
        self._web = AsgiModel(app_of(self.object) or self._call_app)
        await self._web.setup()

    async def teardown(self) -> None:
        await self._web.teardown()
        await super().teardown()

    async def answer(self, request: HttpRequest) -> Response:
        """Answers one request."""
        token = enter_request(self.context_of(request, web=True))
        try:
            return await self._web.http(request)
        except Exception:
            logger.exception("request %s failed", request.id)
            return Response("Internal Server Error", 500, media_type="text/plain")
        finally:
            restore_request(token)

    async def _call_app(self, scope: Any, receive: Any, send: Send) -> None:
        """`__call__` as an ASGI application."""
        if scope["type"] != "http":
            return
        function = self.method(CALL)
        args = [web_request(scope, receive, send)] if inspect.signature(function).parameters else []
        if is_generator(function):
            await self._send_pieces(function(*args), send)
            return
        result = await self.invoke(function, *args)
        if callable(result) and hasattr(result, "status_code"):  # A response of Starlette's.
            await result(scope, receive, send)
        elif isinstance(result, Response):
            await _send(send, result.status, result.headers, *encode(result.body)[::-1])
        elif inspect.isgenerator(result) or inspect.isasyncgen(result):
            await self._send_pieces(result, send)
        else:
            kind, body = _spelled(result)
            await _send(send, 200, [], body, kind.decode())

    async def _send_pieces(self, generator: Any, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", PLAIN)]})
        async for piece in self.pieces(generator):
            body = (
                piece.encode() if isinstance(piece, str) else piece if isinstance(piece, bytes) else _spelled(piece)[1]
            )
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _spelled(value: Any) -> tuple[bytes, bytes]:
    """Type and body of a plain answer."""
    if value is None:
        return PLAIN, b""
    if isinstance(value, bytes):
        return PLAIN, value
    if isinstance(value, str):
        return TEXT, value.encode()
    try:
        return JSON, encode_json(value)
    except TypeError:  # FastAPI knows more: what has attributes, generators, patterns, addresses.
        if importlib.util.find_spec("fastapi") is None:
            raise
        return JSON, encode_json(importlib.import_module("fastapi.encoders").jsonable_encoder(value))


async def _send(send: Send, status: int, headers: list[tuple[str, str]], body: Any, kind: str) -> None:
    told = [(name.lower().encode(), value.encode()) for name, value in headers]
    if not any(name == b"content-type" for name, _ in told):
        told.append((b"content-type", kind.encode()))
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": bytes(body)})


INGRESS = "__serve_ingress__"


def ingress(app: Any) -> Callable[[type], type]:
    """Answers HTTP with an ASGI application, or with what a function without arguments makes."""
    if inspect.isclass(app) or not callable(app):
        raise TypeError("@serve.ingress takes an ASGI application such as FastAPI(), or a function that makes one")

    _make_picklable()

    def decorate(target: type) -> type:
        if not inspect.isclass(target):
            raise TypeError(
                "@serve.ingress decorates classes, below @serve.deployment"
                if hasattr(target, "func_or_class")
                else f"@serve.ingress decorates classes, not {target!r}"
            )
        setattr(target, INGRESS, staticmethod(lambda: app))
        return target

    return decorate


def _make_picklable() -> None:
    """Starlette's state cannot be pickled as it is, and every application has one."""
    try:
        from starlette.datastructures import State
    except ImportError:
        return
    copyreg.pickle(State, lambda state: (State, (dict(state._state),)))


def app_of(instance: Any) -> Any:
    """The application of a deployment, with its routes bound to the object; None if it has none."""
    get = None if inspect.isfunction(instance) else getattr(type(instance), INGRESS, None)
    if get is None:
        return None
    app = get()
    if inspect.isfunction(app) and not inspect.iscoroutinefunction(app) and not inspect.signature(app).parameters:
        app = app()
    return bound_to(app, instance)
