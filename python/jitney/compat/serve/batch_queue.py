"""The queue of one batched function in one replica: when a batch is formed, and with which calls.

A batch is formed when the function is free to run it: while it is busy, calls wait, and its next batch takes as many
as fit. A free function starts when a batch is full or its oldest call has waited for `batch_wait_timeout_s`. Calls are
taken in the order of their arrival; one that does not fit keeps its place. A batch has calls of one multiplexed model.
Everything happens on one event loop, in turns of it: there is no task that could die.

A batch that runs calls the function with lists, and gives every caller its own part of the answer.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from jitney.compat.serve.batch_items import BatchArguments, BatchItem
from jitney.compat.serve.exceptions import ItemTooLarge, RayServeException

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
