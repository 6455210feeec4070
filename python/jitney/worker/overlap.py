"""Two batches at a time, one stage apart: the next one is prepared while this one is in the model.

For handlers that say so (`batches_at_a_time`) and offer their work in two halves, `begin` and `finish`.
A thread reads frames and begins; the main thread finishes and answers, in the order of arrival. The two
halves of a batch see a context of their own, so nothing of one batch can reach another, and what `finish`
is given is what it would be given if everything ran one after another.
"""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from jitney.worker.batch import BatchDecoder
from jitney.worker.context import WorkerContext
from jitney.worker.loader import LoadedModel
from jitney.worker.outlet import Outlet
from jitney.worker.protocol import BATCH, STOP, Frame, FrameReader, ProtocolError
from jitney.worker.run import BatchAnswer, bind, conclude, excuse, send_answer


class Stages(NamedTuple):
    """A handler's work in two halves, and how many batches it wants to hold."""

    begin: Callable[[Any, WorkerContext], Any]
    finish: Callable[[Any, WorkerContext], Any]
    slots: int


class Begun(NamedTuple):
    """A batch between the halves: what `begin` made of it, or why it failed there."""

    frame: Frame
    context: WorkerContext
    prepared: Any
    failure: BatchAnswer | None = None


Arrival = Begun | BaseException | None


def stages_of(model: LoadedModel) -> Stages | None:
    """The stages of a model whose handler lets them overlap."""
    service = getattr(model.entry_point, "__self__", None)
    if model.mode != "single" or service is None or not callable(getattr(service, "batches_at_a_time", None)):
        return None
    slots = int(service.batches_at_a_time())
    return Stages(service.begin, service.finish, slots) if slots > 1 else None


def run_overlapped(outlet: Outlet, reader: FrameReader, model: LoadedModel, stages: Stages) -> None:
    """Answers batches in order until the server stops or is gone."""
    # The server gives no more batches than there are slots; one place more is for its last word.
    belt: queue.Queue[Arrival] = queue.Queue(stages.slots + 1)
    threading.Thread(target=_begin_all, args=(reader, model, stages, belt), name="begin", daemon=True).start()
    try:
        while True:
            arrival = belt.get()
            if arrival is None:
                return
            if isinstance(arrival, BaseException):
                raise arrival
            _finish(outlet, model, stages, arrival)
            del arrival  # It may be large, and the wait for the next batch long.
    finally:
        # A blocked read keeps the socket open even after it was closed; the server must see the end.
        outlet.hang_up()


def _begin_all(reader: FrameReader, model: LoadedModel, stages: Stages, belt: queue.Queue[Arrival]) -> None:
    """The reading thread: everything it meets goes onto the belt, its own end too."""
    decoder = BatchDecoder(model.decode_input)
    try:
        while True:
            frame = reader.read()
            if frame is None or frame.kind == STOP:
                belt.put(None)
                return
            if frame.kind != BATCH:
                raise ProtocolError(f"expected BATCH or STOP, got a frame of kind {frame.kind}")
            belt.put(_begin(frame, decoder, model, stages))
            del frame
    except BaseException as error:
        belt.put(error)


def _begin(frame: Frame, decoder: BatchDecoder, model: LoadedModel, stages: Stages) -> Begun:
    context = copy.copy(model.context)
    rows = bind(frame, decoder, context)
    frame = frame._replace(payload=b"")  # The rows hold what is needed of it.
    try:
        return Begun(frame, context, stages.begin(rows, context))
    except Exception as error:
        return Begun(frame, context, None, excuse(error))


def _finish(outlet: Outlet, model: LoadedModel, stages: Stages, begun: Begun) -> None:
    context = model.context
    context.take_over(begun.context)
    answer = begun.failure
    if answer is None:
        try:
            outputs = stages.finish(begun.prepared, context)
        except Exception as error:
            answer = excuse(error)
        else:
            answer = conclude(outputs, begun.frame.count, context)
    send_answer(outlet, begun.frame, answer)
