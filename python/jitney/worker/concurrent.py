"""Many batches at a time, for handlers that are coroutines (`asyncCommunication`).

An event loop reads frames whenever there are some and runs one task per batch, each with a context of its own. Answers
leave in the order in which they are ready, those of one turn of the loop in one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from jitney.torchserve.failures import ClientsLeft
from jitney.torchserve.threads import THREADS
from jitney.worker.batch import BatchDecoder, Row, TensorRow
from jitney.worker.context import WorkerContext
from jitney.worker.loader import LoadedModel
from jitney.worker.protocol import (
    BATCH,
    CANCEL,
    REPLY,
    SHARE,
    STOP,
    TIMES,
    Frame,
    FrameReader,
    ProtocolError,
    encode_control,
    workers_of,
)
from jitney.worker.reply import EncodedReply
from jitney.worker.run import BatchAnswer, Incoming, answer_from, failure_from, read_frames, send_answer, unread_answer
from jitney.worker.writer import FrameWriter, TurnWriter

CANCEL_SECONDS = 1.0

AnswerLone = Callable[[Row, list[bytes], WorkerContext, int], Awaitable[EncodedReply]]


def run_concurrently(writer: FrameWriter, reader: FrameReader, model: LoadedModel) -> None:
    """Answers batches until the server stops, when all are finished, or is gone."""
    # A definition has one, in which its `setup` ran; what that began its `teardown` ends.
    own = getattr(model.service, "loop", None) if model.loop is None else None
    loop = own or model.loop or asyncio.new_event_loop()
    spared = asyncio.all_tasks(loop) if own is not None else set()
    batches = _ConcurrentBatches(writer, model, cancels=own is not None)
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
    """Cancels what is unfinished but these; a task that resists is left behind."""
    tasks = asyncio.all_tasks(loop) - spared
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_SECONDS))


class _ConcurrentBatches:
    """The batches of one worker that are under way."""

    def __init__(self, writer: FrameWriter, model: LoadedModel, cancels: bool) -> None:
        self._writer = TurnWriter(writer)
        self._model = model
        self._decoder = BatchDecoder(model.reader_for)
        self._tasks: dict[int, tuple[asyncio.Task[None], int]] = {}
        """By the id of their batch, with the number of its requests."""
        self._clients = model.context.clients
        self._cancels = cancels
        """Whether a batch that nobody waits for is cancelled. Handlers of archives are not prepared for that."""
        if cancels:  # Definitions let the loop turn after each piece. Handlers of archives may keep it.
            model.context.frame_writer = self._writer
        self._cancelled: set[int] = set()
        """Batches that the server has cancelled."""
        self._errors: list[Exception] = []
        """What went wrong here, and not in the handler."""
        self._ended = False
        turns = getattr(model.service, "turns", None)
        self._turns: Any = turns() if callable(turns) else None
        """Of a mixed class: which of its batches wait for each other."""
        self._answer_lone: AnswerLone | None = getattr(model.service, "answer_lone", None)
        """How a request that is alone in its batch is answered for less, if there is such a way."""

    async def run(self, reader: FrameReader) -> None:
        """Answers batches until STOP or the end of the stream."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._over: asyncio.Future[bool] = self._loop.create_future()
        """Whether there is somebody to answer to, once no more batches come."""
        self._writer.begin(self._loop)
        if reader.can_poll:
            self._loop.add_reader(reader.fileno(), self._readable, reader)
            self._readable(reader)  # Something may be buffered already.
            if not self._cancels:
                self._clients.look = lambda: self._look(reader)
        else:
            threading.Thread(target=self._read, args=(reader,), daemon=True).start()
        try:
            if await self._over:
                await self._finish_all()
        finally:
            if reader.can_poll:
                self._loop.remove_reader(reader.fileno())

    async def _finish_all(self) -> None:
        """Waits for all batches, and sends their answers."""
        await asyncio.gather(*(task for task, _ in self._tasks.values()), return_exceptions=True)
        await asyncio.sleep(0)  # Cancelled ones are answered only after their task has ended.
        self._writer.flush()
        for error in self._errors:
            raise error

    def _readable(self, reader: FrameReader) -> None:
        """Takes all frames that are there."""
        try:
            for frame in reader.poll():
                self._take(frame)
                if self._over.done():
                    break
        except Exception as error:
            self._fail(error)

    def _look(self, reader: FrameReader) -> None:
        """For a handler that keeps the loop: nobody reads meanwhile."""
        if threading.get_ident() == self._thread:
            self._readable(reader)

    def _read(self, reader: FrameReader) -> None:
        """The reading thread, for connections that cannot be polled."""
        with contextlib.suppress(RuntimeError):  # The loop is closed when the worker ends.
            read_frames(reader, lambda received: self._loop.call_soon_threadsafe(self._received, received))

    def _received(self, received: Incoming) -> None:
        try:
            if isinstance(received, BaseException):
                raise received
            self._take(received)
        except Exception as error:
            self._fail(error)

    def _take(self, frame: Frame | None) -> None:
        """Begins a batch, or does what another frame says."""
        if frame is None:
            self._stop(False)  # The server is gone; unfinished work has no receiver.
        elif frame.kind == BATCH:
            self._tasks[frame.id] = asyncio.Task(self._answer(frame), loop=self._loop), frame.count
        elif frame.kind == CANCEL:
            self._cancel(frame)
        elif frame.kind == SHARE:
            THREADS.take(workers_of(frame))
        elif frame.kind != STOP:
            raise ProtocolError(f"expected BATCH or STOP, got a frame of kind {frame.kind}")
        else:
            self._stop(True)

    def _stop(self, answers: bool) -> None:
        if not self._over.done():
            self._over.set_result(answers)

    def _fail(self, error: Exception) -> None:
        """Ends the worker."""
        self._errors.append(error)
        if not self._over.done():
            self._over.set_exception(error)

    def end(self) -> None:
        """Nothing more is answered."""
        self._ended = True

    def _cancel(self, frame: Frame) -> None:
        """Notes who has left, and cancels a batch whose clients all have; it may be finished already."""
        batch_id = frame.id
        if batch_id in self._tasks and self._clients.note(frame) and self._cancels:
            self._cancelled.add(batch_id)
            task, count = self._tasks[batch_id]
            task.add_done_callback(lambda task: self._drop(batch_id, count) if task.cancelled() else None)
            task.cancel()

    def _drop(self, batch_id: int, count: int) -> None:
        self._finished(batch_id)
        if not self._ended:
            self._writer.send(REPLY, count, batch_id, unread_answer(count))

    def _finished(self, batch_id: int) -> None:
        """A batch is over."""
        del self._tasks[batch_id]
        self._cancelled.discard(batch_id)
        self._clients.forget(batch_id)
        self._model.after_batch(self._is_busy)

    def _is_busy(self) -> bool:
        """Whether batches are under way; if none is, no answer waits to be sent either."""
        if not self._tasks:
            self._writer.flush()
        return bool(self._tasks)

    async def _answer(self, frame: Frame) -> None:
        try:
            rows, metas = self._decoder.decode(frame.payload, frame.count)
            if self._turns is None:
                await self._run(frame, rows, metas)
            else:
                await self._run_in_turn(self._turns, frame, rows, metas)
        except Exception as error:  # Not the handler's, whose errors were answered: it ends the worker.
            self._fail(error)
        self._finished(frame.id)

    async def _run_in_turn(self, turns: Any, frame: Frame, rows: list[Row], metas: list[bytes]) -> None:
        async with turns.of(metas) as beside:
            if beside:
                self._writer.send(TIMES, 0, frame.id, (encode_control({"beside": True}),))
                self._writer.flush()  # Before any piece of its answer.
            await self._run(frame, rows, metas)

    async def _run(self, frame: Frame, rows: list[Row], metas: list[bytes]) -> None:
        context = self._model.context
        try:
            if self._answer_lone is not None and len(rows) == 1 and not isinstance(rows[0], TensorRow):
                outputs = await self._answer_lone(rows[0], metas, context, frame.id)
            else:
                context = context.for_batch(metas, frame.id)
                outputs = self._model.entry_point(rows, context)
                if inspect.isawaitable(outputs):
                    outputs = await outputs
        except asyncio.CancelledError:
            if self._ended or frame.id in self._cancelled:
                raise
            error = RuntimeError("the function was cancelled, but not by the server")
            answer: BatchAnswer = failure_from(error, metas)
        except ClientsLeft:
            answer = unread_answer(frame.count)
        except Exception as error:
            answer = failure_from(error, metas)
        else:
            answer = answer_from(outputs, frame.count, context)
        send_answer(self._writer, frame.id, frame.count, answer, self._model.facts_to_tell())
