"""Language models by vLLM, under TorchServe's archives (`handler: vllm_handler`) and their model-config.yaml.

A worker runs vLLM's own web application and passes requests on to it as they came; templates, scheduling, streams and
the forms of answers are vLLM's. It is a definition and no handler with `handle`, so that a client that leaves cancels
its text (ADR 0053). Importing this module needs no vLLM.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Any, ClassVar

from jitney.definition.decorators import endpoint
from jitney.definition.options import CONCURRENCY_MAX
from jitney.http.asgi import AsgiModel
from jitney.http.request import HttpRequest
from jitney.http.response import Response
from ts.torch_handler.vllm_engine import VllmInterface, vllm_arguments

logger = logging.getLogger(__name__)

PATHS = (
    "v1/chat/completions",
    "v1/completions",
    "v1/responses",
    "v1/models",
    "v1/embeddings",
    "tokenize",
    "detokenize",
)
"""The paths of vLLM's application that are passed on; each is an endpoint. The server knows the same list."""
LOOK_SECONDS = 5.0
"""How often it is looked whether the engine still runs; vLLM's own server does it as often."""
LAST_WORDS_SECONDS = 1.0
"""Time for answers that say that the engine failed to leave the worker."""


class VLLMHandler:
    """A language model behind OpenAI's routes."""

    worker: ClassVar[Any]

    @classmethod
    def __jitney_worker__(cls, facts: Any) -> None:
        cls.worker = facts

    async def setup(self) -> None:
        """Starts the engine and its application."""
        interface = VllmInterface()
        settings = self.worker.settings.get("handler") or {}
        arguments = vllm_arguments(interface, settings, self.worker.model_dir, self.worker.served_as)
        self._ends = contextlib.AsyncExitStack()
        engine = await self._ends.enter_async_context(interface.engine(arguments))
        if engine is None:
            raise RuntimeError("vLLM's engine did not start; it has printed why")
        app = await interface.application(engine, arguments)
        app.state.server = EngineEnd()
        self._app = AsgiModel(app)
        await self._app.setup()
        self._ends.push_async_callback(self._app.teardown)
        watch = asyncio.ensure_future(watched(engine, app.state.server))
        self._ends.callback(watch.cancel)

    async def teardown(self) -> None:
        """Ends both."""
        await self._ends.aclose()

    async def pass_on(self, request: HttpRequest) -> Response:
        """The application's answer to a request, whichever path of ours led to it."""
        below = request.path if request.path != "/" else ""
        request.root_path, request.path = "", f"/{request.endpoint}{below}"
        request.raw_path = request.path
        return await self._app.http(request)


def _passed_on(path: str) -> Any:
    async def call(self: VLLMHandler, request: HttpRequest) -> Response:
        return await self.pass_on(request)

    call.__name__ = path
    call.__doc__ = f"What vLLM answers at /{path}."
    return endpoint(raw=True, concurrency=CONCURRENCY_MAX)(call)


for _path in PATHS:
    setattr(VLLMHandler, _path, _passed_on(_path))


class EngineEnd:
    """What vLLM's application takes for its server. Told to exit, since the engine is dead, it ends the worker, and
    our server starts another one."""

    _exits = False

    @property
    def should_exit(self) -> bool:
        """Whether it was told to."""
        return self._exits

    @should_exit.setter
    def should_exit(self, told: bool) -> None:
        if told and not self._exits:
            self._exits = True
            logger.error("vLLM's engine has failed, and this worker ends")
            asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, os._exit, 1)


async def watched(engine: Any, end: EngineEnd) -> None:
    """Looks after the engine, which may fail while no request tells of it."""
    while not (engine.errored and not engine.is_running):
        await asyncio.sleep(LOOK_SECONDS)
    end.should_exit = True
