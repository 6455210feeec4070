"""Runs a batch of items through an endpoint: arrange, call, split, one outcome per item.

These are three steps, and each may have a thread of its own: the next batch is arranged and the last one split while
the function runs. An outcome is the item's output, or the exception that is its own. An exception out of a
call with several items is raised to the caller, which decides whether the halves of the batch are
retried. Sync and async differ in nothing but the `await`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jitney.call.context import CallContext, ContextSource
from jitney.call.errors import ItemErrors
from jitney.call.request import Request
from jitney.definition.construction import Resolve, make
from jitney.definition.definition import Definition, Endpoint
from jitney.execution.grouping import Invocation, Item, Plan, plan
from jitney.execution.splitting import AnswerStreams, Emit, split
from jitney.gpu.fetching import Fetching, fetched, start_fetching
from jitney.gpu.shapes import use_shapes
from jitney.http.response import Response, stream_of
from jitney.values.containers import container_of

if TYPE_CHECKING:
    import asyncio

Function = Callable[..., Any]


class Execution:
    """A batch of one endpoint: arranged when it is made, then run once, then split once."""

    def __init__(self, endpoint: Endpoint, items: Sequence[Item], source: ContextSource | None = None) -> None:
        self.endpoint = endpoint
        self._items = items
        self._source: ContextSource = source or _OfItems("", items)
        self._plan: Plan = plan(endpoint, items)
        self._done: dict[int, Any] = dict(self._plan.failed)
        self._returned: list[tuple[Invocation, Any]] = []
        self._again: list[Invocation] = []

    def run(self, function: Function, emit: Emit | None = None) -> None:
        """Calls the function as often as the plan wants it."""
        use_shapes(self.endpoint.shapes)
        for invocation in self._plan.invocations:
            if self.endpoint.streams:
                with self._enter(invocation):
                    self._done.update(_stream(function, invocation, _streams(self.endpoint, invocation, emit)))
                continue
            for again in self._tries(invocation):
                try:
                    with self._enter(again):
                        result = function(**again.arguments)
                        pieces = self._pieces(result)
                        if pieces is not None:
                            self._done.update(_stream(pieces, again, _streams(self.endpoint, again, emit)))
                    if pieces is None:
                        self._keep(again, result)
                except Exception as error:
                    self._fail(again, error)

    async def run_async(self, function: Function, emit: Emit | None = None) -> None:
        """The same for functions that may be `async`."""
        use_shapes(self.endpoint.shapes)
        for invocation in self._plan.invocations:
            if self.endpoint.streams:
                streams = _streams(self.endpoint, invocation, emit)
                with self._enter(invocation):
                    self._done.update(await _stream_async(function, invocation, streams))
                continue
            for again in self._tries(invocation):
                try:
                    with self._enter(again):
                        result = function(**again.arguments)
                        if inspect.isawaitable(result):
                            result = await result
                        pieces = self._pieces(result)
                        if pieces is not None:
                            self._done.update(await _stream_async(pieces, again, _streams(self.endpoint, again, emit)))
                    if pieces is None:
                        self._keep(again, result)
                except Exception as error:
                    self._fail(again, error)

    def _enter(self, invocation: Invocation) -> CallContext:
        """Makes a call the current one, for as long as the function runs."""
        return CallContext(self._source, self.endpoint.name, self.endpoint.is_async, invocation.positions)

    def _pieces(self, result: Any) -> Function | None:
        """What makes the pieces of an answer that comes in pieces, of an endpoint that is called for one item."""
        if self.endpoint.batched:
            return None
        found = stream_of(result, self.endpoint.raw)
        return None if found is None else lambda **_: found.pieces()

    @property
    def is_fetched(self) -> bool:
        """Whether nothing that was returned is on its way from a GPU still."""
        return not any(isinstance(result, Fetching) for _, result in self._returned)

    def fetch(self) -> None:
        """Waits for what is on its way from a GPU."""
        self._returned = [(invocation, fetched(result)) for invocation, result in self._returned]

    def outcomes(self, plain: bool = False) -> list[Any]:
        """What the calls returned, split: one outcome per item, in order. With `plain` arrays become lists."""
        parts: dict[int, list[Any]] = {}
        for invocation, result in self._returned:
            try:
                self._split(invocation, fetched(result), parts, plain)
            except Exception as error:
                if len(invocation.positions) > 1:
                    raise
                self._done[invocation.positions[0]] = error
        for position, outputs in parts.items():
            if position not in self._done:
                self._done[position] = _joined(outputs, self.endpoint.options.dims[1])
        return [self._done[position] for position in range(len(self._items))]

    def _tries(self, invocation: Invocation) -> Iterator[Invocation]:
        """The invocation, and what is left of it after some of its items were named as bad."""
        if not invocation.whole and isinstance(self._done.get(invocation.positions[0]), BaseException):
            return
        yield invocation
        while self._again:
            yield self._again.pop(0)

    def _keep(self, invocation: Invocation, result: Any) -> None:
        """Keeps what the function returned until it is split."""
        self._returned.append((invocation, start_fetching(result)))

    def _split(self, invocation: Invocation, result: Any, parts: dict[int, list[Any]], plain: bool) -> None:
        """What the function returned, by item."""
        endpoint, positions = self.endpoint, invocation.positions
        if not endpoint.batched:
            self._done[positions[0]] = result
            return
        outputs = split(result, len(positions), invocation.sizes, endpoint.options.dims[1], plain)
        if invocation.whole or isinstance(outputs[0], BaseException):
            self._done.update(zip(positions, outputs))
        else:
            parts.setdefault(positions[0], []).append(outputs[0])

    def _fail(self, invocation: Invocation, error: Exception) -> None:
        """Fails a lone item, or the items that the error names, and runs the others again; else raises the error."""
        if isinstance(error, ItemErrors):
            positions = invocation.positions
            named = {positions[at]: bad for at, bad in error.errors.items() if 0 <= at < len(positions)}
            if named:
                self._done.update(named)
                self._rest(invocation, named)
                return
        if isinstance(error, (AttributeError, TypeError)):  # As a list has it that was taken for one item.
            error.args = ("; ".join([str(error), *self.endpoint.mistakes()]),)
        if len(invocation.positions) > 1:
            raise error
        self._done[invocation.positions[0]] = error

    def _rest(self, invocation: Invocation, named: dict[int, BaseException]) -> None:
        """Runs the items that were not named again; there are no more rounds than items."""
        left = [position for position in invocation.positions if position not in named]
        if left:
            again = plan(self.endpoint, [self._items[position] for position in left])
            for one in again.invocations:
                one.positions = [left[at] for at in one.positions]
            self._again += again.invocations


def _joined(parts: list[Any], dim: int) -> Any:
    """The output of an item that was too large for one call."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: _joined([part[key] for part in parts], dim) for key in first}
    container = container_of(first)
    if container is not None:
        return container.join(parts, dim)
    return [output for part in parts for output in part]


def _streams(endpoint: Endpoint, invocation: Invocation, emit: Emit | None) -> AnswerStreams:
    return AnswerStreams(invocation, endpoint.batched, emit or (lambda position, piece: None))


def _stream(function: Function, invocation: Invocation, streams: AnswerStreams) -> dict[int, Any]:
    try:
        generator = function(**invocation.arguments)
        try:
            for pieces in generator:
                streams.step(pieces)
                if not streams.open:
                    break
        finally:
            generator.close()
    except Exception as error:
        return _broken_off(invocation, streams, error)
    return streams.finish()


async def _stream_async(function: Function, invocation: Invocation, streams: AnswerStreams) -> dict[int, Any]:
    import asyncio

    generator = function(**invocation.arguments)
    if not hasattr(generator, "__aiter__"):
        generator = _as_async(generator)
    try:
        try:
            async for pieces in generator:
                streams.step(pieces)
                if not streams.open:
                    break
                if not (isinstance(pieces, Response) and pieces.is_head):  # It leaves with the first piece.
                    await asyncio.sleep(0)  # What was sent leaves, others have their turn, the batch can be cancelled.
        finally:
            await generator.aclose()
    except Exception as error:
        return _broken_off(invocation, streams, error)
    return streams.finish()


async def _as_async(generator: Any) -> AsyncIterator[Any]:
    """The pieces of a plain generator."""
    try:
        for pieces in generator:
            yield pieces
    finally:
        generator.close()


def _broken_off(invocation: Invocation, streams: AnswerStreams, error: Exception) -> dict[int, Any]:
    """Fails the items that are not complete; raises instead if no piece was sent yet, so that all can be retried."""
    if len(invocation.positions) > 1 and not streams.begun:
        raise error
    return streams.finish(error)


class _OfItems:
    """The requests of items that know them."""

    reserves = None

    def __init__(self, model: str, items: Sequence[Item]) -> None:
        self.model = model
        self._items = items

    def request_at(self, position: int) -> Request:
        """The request of the item at this position."""
        return self._items[position].request


class Instance:
    """The object behind a definition's endpoints, made once and closed once. `async` endpoints run on
    its own loop unless the caller has one (`call_async`)."""

    def __init__(self, definition: Definition, resolve: Resolve | None = None) -> None:
        self.definition = definition
        self._loop: asyncio.AbstractEventLoop | None = None
        use_shapes(definition.shapes)
        self._object = make(definition, resolve)
        self._hook("setup")

    def function(self, endpoint: Endpoint) -> Callable[..., Any]:
        """The callable behind an endpoint."""
        target = self._object if endpoint.attribute is None else getattr(self._object, endpoint.attribute)
        function: Callable[..., Any] = target
        return function

    def arrange(self, endpoint: Endpoint, items: Sequence[Item]) -> Execution:
        """A batch of items that know their requests."""
        return Execution(endpoint, items, _OfItems(self.definition.name, items))

    def call(self, endpoint: Endpoint, items: Sequence[Item], emit: Emit | None = None) -> list[Any]:
        """One outcome per item."""
        execution = self.arrange(endpoint, items)
        self.run(execution, emit)
        return execution.outcomes()

    def run(self, execution: Execution, emit: Emit | None = None) -> None:
        """Calls the function of an endpoint, and returns when it has."""
        endpoint = execution.endpoint
        if endpoint.is_async:
            self._wait(execution.run_async(self.function(endpoint), emit))
        else:
            execution.run(self.function(endpoint), emit)

    async def run_async(self, execution: Execution, emit: Emit | None = None) -> None:
        """The same inside a running loop."""
        await execution.run_async(self.function(execution.endpoint), emit)

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

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop in which `setup`, `async` endpoints and `teardown` run."""
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
        return self._loop

    def _wait(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)
