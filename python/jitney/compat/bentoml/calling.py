"""From a method of a service to the function of an endpoint, which the server's batches call.

It has the wire's parameters as its signature, reads what has to be read, calls the method and sees to the answer. In a
worker whose methods run side by side, those that are not `async` run in threads.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from jitney.call.request import Request
from jitney.compat.bentoml.answering import EVENT_STREAM, may_be_file, outgoing
from jitney.compat.bentoml.context import Context
from jitney.compat.bentoml.parameters import WireShape
from jitney.definition.hints import MISSING

REQUEST = "bentoml_request"
"""The wire function's parameter that gets the request."""
END = object()

Method = Callable[..., Any]


class ApiCall:
    """One API of a service: how its method is called."""

    def __init__(self, shape: WireShape, method: Method, batchable: bool) -> None:
        self._shape = shape
        self._batchable = batchable
        bare = inspect.unwrap(method)
        self.is_async = inspect.iscoroutinefunction(bare) or inspect.isasyncgenfunction(bare)
        self.streams = inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare)
        self._looks_at_answer = not batchable and may_be_file(shape.output)
        self._needs_request = not batchable and (
            self.streams or self._looks_at_answer or shape.context is not None or shape.takes_files
        )

    def function(self, method_of: Callable[[Any], Method], threaded: bool) -> Method:
        """The function of the endpoint. Its first argument is the served object, of which `method_of` gives the bound
        method. If `threaded`, methods that are not `async` run in that object's threads."""
        made = self._streaming(method_of, threaded) if self.streams else self._single(method_of, threaded)
        named: Any = made
        named.__signature__ = self._signature()
        named.__annotations__ = self._annotations()
        return made

    def _signature(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        wire = [inspect.Parameter(one.wire_name, kind, default=one.default) for one in self._shape.params]
        wire.sort(key=lambda one: one.default is not MISSING)
        own = [inspect.Parameter("self", kind), *wire]
        if self._needs_request:
            own.append(inspect.Parameter(REQUEST, inspect.Parameter.KEYWORD_ONLY))
        return inspect.Signature(own)

    def _annotations(self) -> dict[str, Any]:
        found = {one.wire_name: one.hint for one in self._shape.params}
        if self._needs_request:
            found[REQUEST] = Request
        output = self._shape.output
        if output is not Any and not self._looks_at_answer:
            found["return"] = list[output] if self._batchable else output  # type: ignore[valid-type]
        return found

    def _arguments(self, given: dict[str, Any], context: Context) -> tuple[list[Any], dict[str, Any]]:
        """The method's arguments."""
        by_place: list[Any] = []
        named: dict[str, Any] = {}
        for one in self._shape.params:
            if one.wire_name not in given:
                continue
            value = given[one.wire_name]
            for read in one.readers:
                value = read(value, context)
            if one.by_place:
                by_place.append(value)
            else:
                named[one.name] = value
        if self._shape.context is not None:
            named[self._shape.context] = context
        return by_place, named

    def _answer(self, result: Any, request: Request) -> Any:
        return outgoing(result, request, self._shape.output_notes) if self._looks_at_answer else result

    def _single(self, method_of: Callable[[Any], Method], threaded: bool) -> Method:
        def plain(served: Any, /, **given: Any) -> Any:
            request = given.pop(REQUEST, None)
            with Context(request) as context:
                by_place, named = self._arguments(given, context)
                return self._answer(method_of(served)(*by_place, **named), request)

        async def of_loop(served: Any, /, **given: Any) -> Any:
            request = given.pop(REQUEST, None)
            with Context(request) as context:
                by_place, named = self._arguments(given, context)
                return self._answer(await method_of(served)(*by_place, **named), request)

        async def in_thread(served: Any, /, **given: Any) -> Any:
            return await served.in_pool(functools.partial(plain, served, **given))

        return of_loop if self.is_async else in_thread if threaded else plain

    def _streaming(self, method_of: Callable[[Any], Method], threaded: bool) -> Method:
        @contextlib.contextmanager
        def begun(served: Any, given: dict[str, Any]) -> Iterator[Any]:
            request = given.pop(REQUEST)
            request.response_headers.setdefault("Content-Type", EVENT_STREAM)
            with Context(request) as context:
                by_place, named = self._arguments(given, context)
                yield method_of(served)(*by_place, **named)

        async def of_loop(served: Any, /, **given: Any) -> AsyncIterator[Any]:
            with begun(served, given) as pieces:
                async with contextlib.aclosing(pieces):
                    async for piece in pieces:
                        yield piece

        async def in_thread(served: Any, /, **given: Any) -> AsyncIterator[Any]:
            with begun(served, given) as pieces, contextlib.closing(pieces):
                while (piece := await served.in_pool(next, pieces, END)) is not END:
                    yield piece

        def plain(served: Any, /, **given: Any) -> Iterator[Any]:
            with begun(served, given) as pieces:
                yield from pieces

        return of_loop if self.is_async else in_thread if threaded else plain
