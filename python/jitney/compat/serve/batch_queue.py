"""The queue of one batched function in one replica: when a batch is formed, and with which calls.

A batch is formed when the function is free to run it: while it is busy, calls wait, and its next batch takes as many
as fit. A free function starts when a batch is full or its oldest call has waited for `batch_wait_timeout_s`. Calls are
taken in the order of their arrival; one that does not fit keeps its place. A batch has calls of one multiplexed model.
Everything happens on one event loop, in turns of it: there is no task that could die.

A batch that runs calls the function with lists, and gives every caller its own part of the answer. Arguments are
matched by the function's signature and not by their order, so that callers may name them in any order; a parameter that
only some of the callers give has its default for the others.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from jitney.call.context import CURRENT
from jitney.compat.serve.exceptions import ItemTooLarge, RayServeException

PIECES_MAX = 4096
"""Pieces of a stream that may wait for their reader."""
LIST_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class BatchArguments:
    """Reads the arguments of calls of one function."""

    def __init__(self, function: Callable[..., Any], is_method: bool) -> None:
        parameters = list(inspect.signature(function).parameters.values())[is_method:]
        self._signature = inspect.Signature(parameters)
        self._parameters = parameters

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """One call's; a TypeError if they do not fit."""
        return self._signature.bind(*args, **kwargs)

    def first_of(self, bound: inspect.BoundArguments) -> Any:
        """The first argument, which is the item itself."""
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                return value[0] if value else None
            if kind is inspect.Parameter.VAR_KEYWORD:
                return next(iter(value.values()), None)
            return value
        return None

    def together(self, calls: Sequence[inspect.BoundArguments]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of all calls, each a list with one element per call."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self._parameters:
            name, kind = parameter.name, parameter.kind
            given = [call.arguments[name] for call in calls if name in call.arguments]
            if not given:
                continue
            if kind is inspect.Parameter.VAR_POSITIONAL:
                positional += [list(column) for column in zip(*(call.arguments.get(name, ()) for call in calls))]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                keys = dict.fromkeys(key for one in given for key in one)
                named.update({key: [call.arguments.get(name, {}).get(key) for call in calls] for key in keys})
            else:
                column = [call.arguments.get(name, parameter.default) for call in calls]
                if kind is inspect.Parameter.KEYWORD_ONLY or len(positional) < self._position(name):
                    named[name] = column
                else:
                    positional.append(column)
        return positional, named

    def _position(self, name: str) -> int:
        return [one.name for one in self._parameters if one.kind in LIST_KINDS].index(name)


class BatchItem:
    """One call that waits: what it brings, and who gets the answer."""

    def __init__(self, bound: inspect.BoundArguments, first: Any, model_id: str, arrived: float) -> None:
        self.bound = bound
        self.first = first
        self.model_id = model_id
        self.arrived = arrived
        self.call = CURRENT.get()
        """The call of the replica that it is made for."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        raise NotImplementedError

    def answer(self, value: Any) -> None:
        """The answer, or a piece of it."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """There is no answer, or no more of it."""
        raise NotImplementedError

    def end(self) -> None:
        """The last piece was given."""


class UnaryItem(BatchItem):
    """A call with one answer."""

    def __init__(self, future: Any, *facts: Any) -> None:
        super().__init__(*facts)
        self.future = future

    @property
    def is_gone(self) -> bool:
        return bool(self.future.done())

    def answer(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class StreamItem(BatchItem):
    """A call whose answer comes in pieces; they wait for their reader within a bound."""

    def __init__(self, make_future: Callable[[], Any], *facts: Any) -> None:
        super().__init__(*facts)
        self._make_future = make_future
        self._pieces: deque[Any] = deque()
        self._reader: Any = None
        self._error: BaseException | None = None
        self._over = False
        self._left = False

    @property
    def is_gone(self) -> bool:
        return self._left or self._over

    def answer(self, value: Any) -> None:
        if len(self._pieces) >= PIECES_MAX:
            self.fail(RayServeException("the stream was read too slowly"))
        elif not self.is_gone:
            self._pieces.append(value)
            self._wake()

    def fail(self, error: BaseException) -> None:
        if not self.is_gone:
            self._over, self._error = True, error
            self._wake()

    def end(self) -> None:
        self._over = True
        self._wake()

    def stop_reading(self) -> None:
        """The reader reads no more."""
        self._left = True

    async def read(self) -> Any:
        """The next piece; StopAsyncIteration after the last one."""
        while not self._pieces:
            if self._over:
                error, self._error = self._error, None
                raise error or StopAsyncIteration
            self._reader = self._make_future()
            await self._reader
        return self._pieces.popleft()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


STOPS = (StopIteration, StopAsyncIteration)


async def run_unary(function: Callable[..., Any], arguments: BatchArguments, batch: Sequence[BatchItem]) -> None:
    """A function that returns a list with one answer per call."""
    try:
        positional, named = arguments.together([item.bound for item in batch])
        answers = _checked(await function(*positional, **named), len(batch))
    except asyncio.CancelledError:
        _fail_all(batch, RayServeException("the batch was cancelled"))
        raise
    except Exception as error:
        _fail_all(batch, error)
        return
    for item, answer in zip(batch, answers):
        item.answer(answer)


async def run_stream(function: Callable[..., Any], arguments: BatchArguments, batch: Sequence[BatchItem]) -> None:
    """A generator of lists with one piece per call; a caller whose piece is `StopIteration` gets no more."""
    ended: set[int] = set()
    try:
        positional, named = arguments.together([item.bound for item in batch])
        generator = function(*positional, **named)
        try:
            async for pieces in generator:
                for at, (item, piece) in enumerate(zip(batch, _checked(pieces, len(batch)))):
                    if at in ended:
                        continue
                    if piece in STOPS if isinstance(piece, type) else isinstance(piece, STOPS):
                        ended.add(at)
                        item.end()
                    else:
                        item.answer(piece)
                if all(item.is_gone for item in batch):
                    break
        finally:
            await generator.aclose()
    except asyncio.CancelledError:
        _fail_all(batch, RayServeException("the batch was cancelled"))
        raise
    except Exception as error:
        _fail_all(batch, error)
        return
    for item in batch:
        item.end()


def _checked(answers: Any, count: int) -> Sequence[Any]:
    """Answers that can be dealt out, one for each call; else nobody gets another caller's."""
    if isinstance(answers, (str, bytes, Mapping, Set)) or not (
        hasattr(answers, "__len__") and hasattr(answers, "__iter__")
    ):
        raise TypeError(
            f"a function with @serve.batch returns a list with one answer per call, not {type(answers).__name__}"
        )
    if len(answers) != count:
        raise RayServeException(
            f"a function with @serve.batch returned {len(answers)} answers to {count} calls: "
            "the answer must have one element per call"
        )
    found: Sequence[Any] = answers
    return found


def _fail_all(batch: Sequence[BatchItem], error: BaseException) -> None:
    for item in batch:
        item.fail(error)


Runner = Callable[[Callable[..., Any], BatchArguments, Sequence[BatchItem]], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class BatchSettings:
    """When a batch is large enough, and how long it waits otherwise."""

    max_batch_size: int = 10
    batch_wait_timeout_s: float = 0.01
    max_concurrent_batches: int = 1
    batch_size_fn: Callable[[list[Any]], int] | None = None


class BatchQueue:
    """The calls that wait for one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: BatchArguments,
        streams: bool,
        settings: Callable[[], BatchSettings],
        enter: Callable[[Sequence[BatchItem]], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._function = function
        self._arguments = arguments
        self._run: Runner = run_stream if streams else run_unary
        self._settings_now = settings
        self._settings: BatchSettings | None = None
        """Of the batch that is being collected: those of the moment when its first call came."""
        self._enter = enter
        """Called in the context of a batch before it runs."""
        self._waiting: list[BatchItem] = []
        self._running: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: BatchItem) -> None:
        """One more call. Those of the same turn of the loop come together."""
        self._waiting.append(item)
        if self._settings is None:
            self._settings = self._settings_now()
        self._soon()

    def remove(self, item: BatchItem) -> None:
        """A call whose caller has gone; others take its place."""
        if item in self._waiting:
            self._waiting.remove(item)
            self._soon()

    def _soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._consider)

    def _consider(self) -> None:
        """Starts the batches that are ready."""
        self._scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting = [item for item in self._waiting if not item.is_gone]
        while self._waiting:
            settings = self._settings = self._settings or self._settings_now()
            if len(self._running) >= settings.max_concurrent_batches:
                return
            batch, wait = self._next(settings)
            if batch:
                self._start(batch)
            elif wait is not None:
                self._timer = self.loop.call_later(wait, self._consider)
                return
        self._settings = None

    def _next(self, settings: BatchSettings) -> tuple[list[BatchItem], float | None]:
        """The next batch that is ready; else the time until the first of them is, if any call waits."""
        least: float | None = None
        for model_id in dict.fromkeys(item.model_id for item in self._waiting):
            batch, is_full = self._choose(model_id, settings)
            if not batch:
                continue
            wait = batch[0].arrived + settings.batch_wait_timeout_s - self.loop.time()
            if is_full or wait <= 0:
                return batch, None
            least = wait if least is None else min(least, wait)
        return [], least

    def _choose(self, model_id: str, settings: BatchSettings) -> tuple[list[BatchItem], bool]:
        """The calls of the next batch of a model, and whether no other call of theirs would fit."""
        batch: list[BatchItem] = []
        for item in [one for one in self._waiting if one.model_id == model_id]:
            try:
                size = self._size([*batch, item], settings)
                if not batch and size > settings.max_batch_size:
                    raise ItemTooLarge(
                        f"an item of size {size} is larger than max_batch_size={settings.max_batch_size}"
                    )
            except Exception as error:  # The fault of this item, and of no other.
                self._waiting.remove(item)
                item.fail(error)
                continue
            if size > settings.max_batch_size:
                return batch, True
            batch.append(item)
            if size == settings.max_batch_size:
                return batch, True
        return batch, False

    def _size(self, items: Sequence[BatchItem], settings: BatchSettings) -> int:
        measure = settings.batch_size_fn
        return len(items) if measure is None else measure([item.first for item in items])

    def _start(self, batch: Sequence[BatchItem]) -> None:
        chosen = set(map(id, batch))
        self._waiting = [item for item in self._waiting if id(item) not in chosen]
        self._settings = None
        context = contextvars.Context()  # What is known of one caller is not true of the others.
        context.run(self._enter, batch)
        run = self._run(self._function, self._arguments, batch)
        task = context.run(self.loop.create_task, run)
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._soon()
