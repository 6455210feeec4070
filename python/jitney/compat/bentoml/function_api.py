"""One function of a legacy service: how it is called with what a client sent."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jitney.call.request import Request
from jitney.compat.bentoml.context import Context
from jitney.compat.bentoml.descriptor import IODescriptor, Posted
from jitney.compat.bentoml.io import Multipart
from jitney.compat.bentoml.parameters import CONTEXT_NAMES
from jitney.compat.bentoml.served import mark


@dataclass(frozen=True)
class FunctionApi:
    """One function of a service."""

    name: str
    route: str
    function: Callable[..., Any]
    input: IODescriptor
    output: IODescriptor

    @functools.cached_property
    def context(self) -> str | None:
        """The parameter that gets the context."""
        parameters = inspect.signature(self.function).parameters.values()
        named = (one.name for one in parameters if one.name in CONTEXT_NAMES or one.annotation is Context)
        return next(named, None)

    @property
    def is_async(self) -> bool:
        """Whether the function is to be awaited."""
        return inspect.iscoroutinefunction(self.function)

    def arguments(self, posted: Posted, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """What the function is called with."""
        value = self.input.read(posted)
        named = dict(value) if isinstance(self.input, Multipart) else {}
        if self.context is not None:
            named[self.context] = context
        places = [] if isinstance(self.input, Multipart) or not self._takes_input else [value]
        return places, named

    @functools.cached_property
    def _takes_input(self) -> bool:
        return any(name != self.context for name in inspect.signature(self.function).parameters)


def endpoint(api: FunctionApi, side_by_side: bool) -> Any:
    """The function of the endpoint; those that are not `async` run in threads beside those that are."""

    def run(given: dict[str, Any], request: Request) -> Any:
        context = Context(request)
        try:
            places, named = api.arguments(Posted(given, request), context)
            return api.output.write(api.function(*places, **named), request)
        finally:
            context.close()

    async def of_loop(self: Any, bentoml_request: Request, body: Any = None, **fields: Any) -> Any:
        context = Context(bentoml_request)
        try:
            places, named = api.arguments(Posted({"body": body, **fields}, bentoml_request), context)
            return api.output.write(await api.function(*places, **named), bentoml_request)
        finally:
            context.close()

    async def in_thread(self: Any, bentoml_request: Request, body: Any = None, **fields: Any) -> Any:
        return await self.in_pool(run, {"body": body, **fields}, bentoml_request)

    def plain(self: Any, bentoml_request: Request, body: Any = None, **fields: Any) -> Any:
        return run({"body": body, **fields}, bentoml_request)

    function: Any = of_loop if api.is_async else in_thread if side_by_side else plain
    function.__doc__ = api.function.__doc__
    return mark(function, batched=False, options={"name": api.name, "route": f"POST {api.route}"})
