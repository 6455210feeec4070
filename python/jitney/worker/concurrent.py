"""Many batches at a time, for handlers that are coroutines (`asyncCommunication`).

A thread reads frames for as long as the worker lives, so the server never waits for a handler to
be handed a batch; an event loop runs one task per batch, each with a context of its own. Answers
leave in the order in which they are ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import threading
from functools import partial
from typing import Any

from jitney.worker.batch import BatchDecoder
from jitney.worker.items import assemble
from jitney.worker.loader import LoadedModel
from jitney.worker.protocol import BATCH, CANCEL, REPLY, STOP, Frame, FrameReader, ProtocolError
from jitney.worker.run import BatchAnswer, Incoming, answer_from, bind, failure_from, read_frames, send_answer
from jitney.worker.writer import FrameWriter

CANCEL_SECONDS = 1.0


def run_concurrently(writer: FrameWriter, reader: FrameReader, model: LoadedModel) -> None:
    """Answers batches until the server stops, when all are finished, or is gone."""
    own = getattr(model.service, "loop", None)  # A definition has one, in which its `setup` ran.
    loop = own or asyncio.new_event_loop()
    spared = asyncio.all_tasks(loop)
    batches = _ConcurrentBatches(writer, model)
    try:
        loop.run_until_complete(batches.run(reader))
    finally:
        batches.end()
        # A blocked read keeps the socket open even after it was closed; the server must see the end.
        writer.shut_down()
        _abandon(loop, spared)
        if own is None:
            loop.close()


def _abandon(loop: asyncio.AbstractEventLoop, spared: set[asyncio.Task[Any]]) -> None:
    """Cancels what is unfinished, except what `setup` began and `teardown` ends; a task that resists is left behind."""
    tasks = asyncio.all_tasks(loop) - spared
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_SECONDS))


class _ConcurrentBatches:
    """The batches of one worker that are under way."""

    def __init__(self, writer: FrameWriter, model: LoadedModel) -> None:
        self._writer = writer
        self._model = model
        self._decoder = BatchDecoder(model.decode_input)
        self._incoming: asyncio.Queue[Incoming] = asyncio.Queue()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """By the id of their batch."""
        self._cancelled: set[int] = set()
        """Batches that the server has cancelled."""
        self._ended = False

    async def run(self, reader: FrameReader) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(reader, loop), daemon=True).start()
        while True:
            received = await self._incoming.get()
            if received is None:
                return  # The server is gone; unfinished work has no receiver.
            if isinstance(received, BaseException):
                raise received
            if received.kind == STOP:
                await asyncio.gather(*self._tasks.values())
                return
            if received.kind == CANCEL:
                self._cancel(received.id)
                continue
            if received.kind != BATCH:
                raise ProtocolError(f"expected BATCH or STOP, got a frame of kind {received.kind}")
            self._tasks[received.id] = task = loop.create_task(self._answer(received))
            task.add_done_callback(partial(self._finished, received.id, received.count))

    def end(self) -> None:
        """Nothing more is answered."""
        self._ended = True

    def _cancel(self, batch_id: int) -> None:
        """Cancels a batch whose clients have all disconnected; it may be finished already."""
        task = self._tasks.get(batch_id)
        if task is not None:
            self._cancelled.add(batch_id)
            task.cancel()

    def _read(self, reader: FrameReader, loop: asyncio.AbstractEventLoop) -> None:
        """The reading thread."""
        with contextlib.suppress(RuntimeError):  # The loop is closed when the worker ends.
            read_frames(reader, lambda received: loop.call_soon_threadsafe(self._incoming.put_nowait, received))

    def _finished(self, batch_id: int, count: int, task: asyncio.Task[None]) -> None:
        """An exception here is not the handler's, whose errors were answered: it ends the worker. A cancelled batch is
        answered with nothing, since every batch has an answer."""
        del self._tasks[batch_id]
        self._cancelled.discard(batch_id)
        if task.cancelled():
            if not self._ended:
                self._writer.send(REPLY, count, batch_id, assemble({}, [b""] * count))
        elif task.exception() is not None:
            self._incoming.put_nowait(task.exception())

    async def _answer(self, frame: Frame) -> None:
        context = copy.copy(self._model.context)
        rows = bind(frame, self._decoder, context)
        try:
            outputs = self._model.entry_point(rows, context)
            if inspect.isawaitable(outputs):
                outputs = await outputs
        except asyncio.CancelledError:
            if self._ended or frame.id in self._cancelled:
                raise
            error = RuntimeError("the function was cancelled, but not by the server")
            answer: BatchAnswer = failure_from(error, context.metas)
        except Exception as error:
            answer = failure_from(error, context.metas)
        else:
            answer = answer_from(outputs, frame.count, context)
        send_answer(self._writer, frame.id, frame.count, answer)
