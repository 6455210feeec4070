"""An ASGI application (FastAPI, Starlette, any other) as a model: `jitney serve app.py:served`.

Requests below its mount reach it as they came. Its lifespan begins before the worker serves and ends with the worker,
in the event loop in which requests run. An answer in one piece is sent as one; longer ones are streams.
"""

from __future__ import annotations

from typing import Any

from jitney.decorators import NOTE, Note
from jitney.http.asgi import AsgiExchange, AsgiLifespan
from jitney.http.request import HttpRequest
from jitney.http.response import Response
from jitney.options import Options, make_options


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
        return await AsgiExchange(request, self._lifespan.state).run(self._app)

    setattr(http, NOTE, Note(Options(raw=True), "endpoint"))


def asgi(app: Any, **options: Any) -> AsgiModel:
    """An ASGI application as a model; options are those of `jitney.model`. It is mounted at `/` by default, and named
    `app`."""
    model = AsgiModel(app)
    setattr(model, NOTE, Note(make_options("asgi", {"mount": "/", "name": "app", **options}), "model"))
    return model
