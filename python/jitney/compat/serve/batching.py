"""`@serve.batch`: calls of single items, run together inside the replica.

The function takes lists and returns a list, and is called with single items. It is `async`: a coroutine function, or
an asynchronous generator of lists. `set_max_batch_size` and `set_batch_wait_timeout_s` apply to the next batch. The
code of a batch belongs to all of its calls, and to no single one, whatever it asks about them.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from jitney.call.context import CURRENT, CallContext
from jitney.call.request import Request
from jitney.compat.serve.batch_queue import BatchArguments, BatchItem, BatchQueue, BatchSettings, StreamItem, UnaryItem
from jitney.compat.serve.context import ServeRequestContext, enter_request, get_multiplexed_model_id


class BatchSource:
    """The requests of a batch's calls."""

    reserves = None

    def __init__(self, model: str, requests: Sequence[Request]) -> None:
        self.model = model
        self._requests = requests

    def request_at(self, position: int) -> Request:
        """The request of one call."""
        return self._requests[position]


def enter_batch(batch: Sequence[BatchItem]) -> None:
    """The calling code runs for this batch from now on."""
    enter_request(ServeRequestContext(multiplexed_model_id=batch[0].model_id))
    calls = [item.call for item in batch if item.call is not None]
    if calls and len(calls) == len(batch):
        source = BatchSource(calls[0].model, [call.request for call in calls])
        CURRENT.set(CallContext(source, calls[0].endpoint, True, range(len(calls))))


QUEUES = "__serve_batch_queues__"
"""Where an object keeps the queues of its methods."""


def batch(
    _func: Callable[..., Any] | None = None,
    /,
    *,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], int] | None = None,
) -> Any:
    """Runs calls of the function in batches.

    A batch starts when it has `max_batch_size` items, or `batch_wait_timeout_s` after its first one came; while
    `max_concurrent_batches` run, calls wait and the next batch grows. With `batch_size_fn`, a function of a list of
    items, `max_batch_size` limits what it gives.
    """
    if _func is not None and not callable(_func):
        raise TypeError("@serve.batch decorates functions; its options are given by name")
    if batch_size_fn is not None and not callable(batch_size_fn):
        raise TypeError("batch_size_fn must be a function of a list of items")
    settings = BatchSettings(
        check_size(max_batch_size),
        check_timeout(batch_wait_timeout_s),
        _whole("max_concurrent_batches", max_concurrent_batches),
        batch_size_fn,
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return Batched(function, settings).wrapper

    return decorate if _func is None else decorate(_func)


class Batched:
    """A function that runs in batches: its settings, and a queue for each object whose method it is."""

    def __init__(self, function: Callable[..., Any], settings: BatchSettings) -> None:
        self._function = function
        self.settings = settings
        self._streams = inspect.isasyncgenfunction(function)
        if not self._streams and not inspect.iscoroutinefunction(function):
            raise TypeError("functions decorated with @serve.batch must be `async def`")
        self._own = BatchArguments(function, False)
        self._of_method = BatchArguments(function, True)
        self._queue: BatchQueue | None = None
        self._owners: dict[type, bool] = {}
        self.wrapper = self._wrapper()

    def _wrapper(self) -> Callable[..., Any]:
        wrapper: Any
        if self._streams:

            @functools.wraps(self._function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                queue, item = self._stream_item(args, kwargs)
                return _read(queue, item)

        else:

            @functools.wraps(self._function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                return await self._call(args, kwargs)

        wrapper.set_max_batch_size = self.set_max_batch_size
        wrapper.set_batch_wait_timeout_s = self.set_batch_wait_timeout_s
        wrapper.get_max_batch_size = wrapper._get_max_batch_size = lambda: self.settings.max_batch_size
        wrapper.get_batch_wait_timeout_s = lambda: self.settings.batch_wait_timeout_s
        wrapper._get_batch_wait_timeout_s = wrapper.get_batch_wait_timeout_s
        wrapper._is_serve_batch_wrapper = True
        wrapper.serve_batch = self
        return wrapper  # type: ignore[no-any-return]

    def set_max_batch_size(self, size: int) -> None:
        """The most items of the next batch and those after it."""
        self.settings = replace(self.settings, max_batch_size=check_size(size))

    def set_batch_wait_timeout_s(self, seconds: float) -> None:
        """How long the next batch and those after it wait for more items."""
        self.settings = replace(self.settings, batch_wait_timeout_s=check_timeout(seconds))

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        queue, arguments, rest = self._queue_of(args)
        bound = arguments.bind(rest, kwargs)
        facts = (bound, arguments.first_of(bound), get_multiplexed_model_id(), queue.loop.time())
        item = UnaryItem(queue.loop.create_future(), *facts)
        queue.put(item)
        try:
            return await item.future
        finally:
            queue.remove(item)

    def _stream_item(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[BatchQueue, StreamItem]:
        queue, arguments, rest = self._queue_of(args)
        bound = arguments.bind(rest, kwargs)
        facts = (bound, arguments.first_of(bound), get_multiplexed_model_id(), queue.loop.time())
        item = StreamItem(queue.loop.create_future, *facts)
        queue.put(item)
        return queue, item

    def _queue_of(self, args: tuple[Any, ...]) -> tuple[BatchQueue, BatchArguments, tuple[Any, ...]]:
        """The queue of a call: that of the function, or of the object whose method it is."""
        if not args or not self._is_method_of(args[0]):
            queue = self._queue
            if queue is None or queue.loop is not asyncio.get_running_loop():
                queue = self._queue = self._open(self._function, self._own)
            return queue, self._own, args
        owner = args[0]
        queues: dict[Batched, BatchQueue] = vars(owner).setdefault(QUEUES, {})
        queue = queues.get(self)
        if queue is None or queue.loop is not asyncio.get_running_loop():
            queue = queues[self] = self._open(functools.partial(self._function, owner), self._of_method)
        return queue, self._of_method, args[1:]

    def _open(self, function: Callable[..., Any], arguments: BatchArguments) -> BatchQueue:
        return BatchQueue(function, arguments, self._streams, lambda: self.settings, enter_batch)

    def _is_method_of(self, owner: Any) -> bool:
        kind = type(owner)
        known = self._owners.get(kind)
        if known is None:
            own = (value for one in kind.__mro__ for value in vars(one).values())
            known = self._owners[kind] = any(value is self.wrapper for value in own)
        return known


async def _read(queue: BatchQueue, item: StreamItem) -> AsyncIterator[Any]:
    try:
        while True:
            try:
                piece = await item.read()
            except StopAsyncIteration:
                return
            yield piece
    finally:
        item.stop_reading()
        queue.remove(item)


def check_size(size: Any) -> int:
    """A largest batch."""
    return _whole("max_batch_size", size)


def check_timeout(seconds: Any) -> float:
    """A waiting time."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"batch_wait_timeout_s must be a number of seconds, not {seconds!r}")
    if not seconds >= 0:
        raise ValueError(f"batch_wait_timeout_s must be 0 or more, not {seconds!r}")
    return seconds


def _whole(name: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number of at least 1, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value!r}")
    return value
