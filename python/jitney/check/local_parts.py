"""Parts of an application in this very process, for unit tests and `jitney check`: no server, no batches.

A call runs its part at once, alone, through the same conversions as a call to a worker. What travels along with calls
travels here too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from jitney.call.context import CURRENT, Inherited, inherit
from jitney.call.errors import NotFound
from jitney.call.request import BULK, INTERACTIVE, Request
from jitney.definition.application import Application, Part
from jitney.definition.construction import Resolve
from jitney.definition.definition import Definition, Endpoint, define
from jitney.execution.execution import Execution, Instance
from jitney.execution.grouping import Item
from jitney.handle.handle import Handle, running_loop
from jitney.handle.streams import Call
from jitney.http.arguments import read_call
from jitney.wire.calls import CallOptions, encode_call
from jitney.wire.values import decode, encode

MakeInstance = Callable[[Definition, Resolve], Instance]
_DONE = object()


class LocalParts:
    """The parts of an application except its root, made in the order in which they start."""

    def __init__(self, application: Application, make: MakeInstance, models: Mapping[str, Any] | None = None) -> None:
        self._make = make
        self.instances: dict[str, Instance] = {}
        self._models = {name: define(target) for name, target in (models or {}).items()}
        for part in application.parts[:-1]:
            self.instances[part.name] = make(part.definition, self.resolver(part))

    def resolver(self, part: Part) -> Resolve:
        """What stands for the parts that one calls."""

        def resolve(slot: str) -> Any:
            link = next(one for one in part.links if one.slot == slot)
            handle = LocalHandle(lambda: self._instance(link.model), link.model)
            return handle if link.view is None else link.view(handle)

        return resolve

    def _instance(self, name: str) -> Instance:
        if name not in self.instances and name in self._models:
            self.instances[name] = self._make(self._models[name], lambda slot: None)
        if name not in self.instances:
            raise NotFound(f"{name} is no part of this application; jitney.testing.load(..., models={{{name!r}: ...}})")
        return self.instances[name]

    def close(self) -> None:
        """Ends them, those that call before those that are called."""
        for instance in reversed(self.instances.values()):
            instance.close()


class LocalHandle(Handle):
    """A part of this process as the other parts see it."""

    def __init__(
        self,
        instance: Callable[[], Instance],
        model: str,
        endpoint: str = "",
        options: CallOptions | None = None,
        inherited: Inherited | None = None,
    ) -> None:
        super().__init__(None, model, "", endpoint, options=options)  # type: ignore[arg-type]  # There is none to make.
        self._instance = instance
        self._inherited = inherited

    def options(self, *, request: Request | None = None, **given: Any) -> Handle:
        """See `Handle.options`."""
        handle = super().options(**given)
        if request is not None and isinstance(handle, LocalHandle):
            handle._inherited = inherit([request])
        return handle

    def remote(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs the part: in a task where the caller is `async`, at once otherwise."""
        if _is_async():
            return asyncio.ensure_future(self._run_async(arguments, keywords))
        call = Call(lambda _: None)
        try:
            instance, execution, pieces = self._begin_call(arguments, keywords)
            instance.run(execution, lambda _, piece: pieces.append(piece))
            call.set_result(_outcome(execution, pieces))
        except Exception as error:
            call.set_exception(error)
        return call

    def stream(self, *arguments: Any, **keywords: Any) -> Any:
        """The pieces of the part's answer."""
        return self._pieces_async(arguments, keywords) if _is_async() else self._pieces(arguments, keywords)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs the part and waits for its answer."""
        return self.remote(*arguments, **keywords).result()

    async def _run_async(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        instance, execution, pieces = self._begin_call(arguments, keywords)
        await instance.run_async(execution, lambda _, piece: pieces.append(piece))
        return _outcome(execution, pieces)

    def _pieces(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Iterator[Any]:
        instance, execution, pieces = self._begin_call(arguments, keywords)
        instance.run(execution, lambda _, piece: pieces.append(piece))
        last = _outcome(execution, pieces)
        yield from pieces if execution.endpoint.streams else [last]

    async def _pieces_async(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> AsyncIterator[Any]:
        instance, execution, _ = self._begin_call(arguments, keywords)
        waiting: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.ensure_future(instance.run_async(execution, lambda _, piece: waiting.put_nowait(piece)))
        task.add_done_callback(lambda _: waiting.put_nowait(_DONE))
        try:
            while (piece := await waiting.get()) is not _DONE:
                yield _copied(piece)
            task.result()
            last = _outcome(execution, [])
            if not execution.endpoint.streams:
                yield last
        finally:
            task.cancel()

    def _begin_call(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[Instance, Execution, list[Any]]:
        instance = self._instance()
        endpoint = instance.definition.endpoint(self._names[2])
        item = Item(read_call(endpoint, encode_call(arguments, keywords)), self._as_request(endpoint))
        return instance, instance.arrange(endpoint, [item]), []

    def _as_request(self, endpoint: Endpoint) -> Request:
        """The request that a worker would see."""
        current, own = CURRENT.get(), self._options
        inherited = self._inherited or (Inherited() if current is None else current.inherited)
        headers = {**dict(inherited.headers), **dict(own.own_headers or ())}
        timeout = own.timeout
        if timeout is None and current is not None:
            timeout = current.timeout(inherited, "", time.monotonic())
        priority = own.priority or (BULK if inherited.is_bulk else INTERACTIVE)
        tenant = own.tenant or inherited.tenant
        request_id = headers.get("x-request-id", "")
        return Request(
            request_id, headers, endpoint.name, deadline=timeout, origin="python", tenant=tenant, priority=priority
        )

    def _like(self, endpoint: str, options: CallOptions) -> Handle:
        return LocalHandle(self._instance, self._names[0], endpoint, options, self._inherited)


def _is_async() -> bool:
    current = CURRENT.get()
    return running_loop() is not None and (current is None or current.is_async)


def _outcome(execution: Execution, pieces: list[Any]) -> Any:
    """What the caller gets: the answer, or the pieces of a stream."""
    (outcome,) = execution.outcomes()
    if isinstance(outcome, BaseException):
        raise outcome
    return [_copied(piece) for piece in pieces] if execution.endpoint.streams else _copied(outcome)


def _copied(value: Any) -> Any:
    """A value as it arrives on the other side."""
    return decode(encode(value))
