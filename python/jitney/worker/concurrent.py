"""Many batches at a time, for handlers that are coroutines (`asyncCommunication`).

A thread reads frames for as long as the worker lives, so the server never waits for a handler to
be handed a batch; an event loop runs one task per batch, each with a context of its own. Answers
leave in the order in which they are ready.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading

from jitney.worker.batch import BatchDecoder
from jitney.worker.loader import LoadedModel
from jitney.worker.outlet import Outlet
from jitney.worker.protocol import BATCH, STOP, Frame, FrameReader, ProtocolError
from jitney.worker.run import BatchAnswer, bind, conclude, excuse, send_answer

CANCEL_SECONDS = 1.0

Arrival = Frame | BaseException | None


def run_concurrently(outlet: Outlet, reader: FrameReader, model: LoadedModel) -> None:
    """Answers batches until the server stops, when all are finished, or is gone."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_Floor(outlet, model).run(reader))
    finally:
        # A blocked read keeps the socket open even after it was closed; the server must see the end.
        outlet.hang_up()
        _abandon(loop)
        loop.close()


def _abandon(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what is unfinished; a task that resists is left behind."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_SECONDS))


class _Floor:
    """Where the batches of one worker are worked on."""

    def __init__(self, outlet: Outlet, model: LoadedModel) -> None:
        self._outlet = outlet
        self._model = model
        self._decoder = BatchDecoder(model.decode_input)
        self._arrivals: asyncio.Queue[Arrival] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, reader: FrameReader) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(reader, loop), daemon=True).start()
        while True:
            arrival = await self._arrivals.get()
            if arrival is None:
                return  # The server is gone and nobody waits for what is unfinished.
            if isinstance(arrival, BaseException):
                raise arrival
            if arrival.kind == STOP:
                await asyncio.gather(*self._tasks)
                return
            if arrival.kind != BATCH:
                raise ProtocolError(f"expected BATCH or STOP, got a frame of kind {arrival.kind}")
            task = loop.create_task(self._answer(arrival))
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _read(self, reader: FrameReader, loop: asyncio.AbstractEventLoop) -> None:
        """The reading thread. The server's slots bound how much it can pile up."""
        arrival: Arrival = None
        while True:
            try:
                arrival = reader.read()
            except Exception as error:
                arrival = error
            try:
                loop.call_soon_threadsafe(self._arrivals.put_nowait, arrival)
            except RuntimeError:
                return  # The loop is closed: the worker is on its way out.
            if not isinstance(arrival, Frame) or arrival.kind == STOP:
                return

    def _finished(self, task: asyncio.Task[None]) -> None:
        """What a handler raises was answered; what is left broke the worker itself."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._arrivals.put_nowait(task.exception())

    async def _answer(self, frame: Frame) -> None:
        context = copy.copy(self._model.context)
        rows = bind(frame, self._decoder, context)
        try:
            outputs = self._model.entry_point(rows, context)
            if inspect.isawaitable(outputs):
                outputs = await outputs
        except Exception as error:
            answer: BatchAnswer = excuse(error)
        else:
            answer = conclude(outputs, frame.count, context)
        send_answer(self._outlet, frame, answer)
