"""A definition brought to life: the object behind its endpoints, made once and ended once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from jitney.definition import Definition, Endpoint
from jitney.execution import run, run_async
from jitney.grouping import Item
from jitney.streaming import Emit


class Instance:
    """What one worker, test or script calls. `async` endpoints run on a loop of its own unless
    the caller brings one (`call_async`)."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self._loop: asyncio.AbstractEventLoop | None = None
        target = definition.target
        self._object = target() if isinstance(target, type) else target
        self._hook("setup")

    def function(self, endpoint: Endpoint) -> Callable[..., Any]:
        """The callable behind an endpoint."""
        target = self._object if endpoint.attribute is None else getattr(self._object, endpoint.attribute)
        function: Callable[..., Any] = target
        return function

    def call(self, endpoint: Endpoint, items: Sequence[Item], emit: Emit | None = None) -> list[Any]:
        """One outcome per item."""
        if endpoint.is_async:
            outcomes: list[Any] = self._wait(run_async(endpoint, self.function(endpoint), items, emit))
            return outcomes
        return run(endpoint, self.function(endpoint), items, emit)

    async def call_async(self, endpoint: Endpoint, items: Sequence[Item], emit: Emit | None = None) -> list[Any]:
        """The same inside a running loop."""
        return await run_async(endpoint, self.function(endpoint), items, emit)

    def close(self) -> None:
        """Ends it; `teardown` is called once."""
        self._hook("teardown")
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _hook(self, name: str) -> None:
        if inspect.isroutine(self.definition.target):
            return
        hook = getattr(self._object, name, None)
        if not callable(hook):
            return
        done = hook()
        if inspect.isawaitable(done):
            self._wait(done)

    def _wait(self, awaitable: Any) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(awaitable)
