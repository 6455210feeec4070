"""Two batches at a time, one stage apart: the next one is prepared while this one is in the model.

For handlers that allow it (`batches_at_a_time`) and have their work in two halves, `begin` and `finish`.
A thread reads frames and begins; the main thread finishes and answers, in the order of arrival. Each batch
has a context of its own, so nothing of one batch can reach another, and `finish` gets the same as if
everything ran one after another.
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
from jitney.worker.protocol import BATCH, STOP, Frame, FrameReader, ProtocolError
from jitney.worker.run import BatchAnswer, answer_from, bind, failure_from, send_answer
from jitney.worker.writer import FrameWriter


class Stages(NamedTuple):
    """A handler's work in two halves, and how many batches it wants to hold."""

    begin: Callable[[Any, WorkerContext], Any]
    finish: Callable[[Any, WorkerContext], Any]
    slots: int


class PreparedBatch(NamedTuple):
    """A batch between the halves: what `begin` made of it, or why it failed there."""

    frame: Frame
    context: WorkerContext
    prepared: Any
    failure: BatchAnswer | None = None


Incoming = PreparedBatch | BaseException | None


def stages_of(model: LoadedModel) -> Stages | None:
    """The stages of a model whose handler lets them overlap."""
    service = model.service
    if model.mode != "single" or service is None or not callable(getattr(service, "batches_at_a_time", None)):
        return None
    slots = int(service.batches_at_a_time())
    return Stages(service.begin, _finish_of(service), slots) if slots > 1 else None


def _finish_of(service: Any) -> Callable[[Any, WorkerContext], Any]:
    """The second half of a handler's work, of which `launch` is the first part where there is one."""
    launch, finish = getattr(service, "launch", None), service.finish
    if launch is None:
        return finish  # type: ignore[no-any-return]
    return lambda prepared, context: finish(launch(prepared, context), context)


def run_overlapped(writer: FrameWriter, reader: FrameReader, model: LoadedModel, stages: Stages) -> None:
    """Answers batches in order until the server stops or is gone."""
    # The server sends no more batches than there are slots; one entry more is for the end of the stream.
    ready: queue.Queue[Incoming] = queue.Queue(stages.slots + 1)
    threading.Thread(target=_begin_all, args=(reader, model, stages, ready), name="begin", daemon=True).start()
    try:
        while True:
            received = ready.get()
            if received is None:
                return
            if isinstance(received, BaseException):
                raise received
            _finish(writer, model, stages, received)
            del received  # It may be large, and the wait for the next batch long.
    finally:
        # A blocked read keeps the socket open even after it was closed; the server must see the end.
        writer.shut_down()


def _begin_all(reader: FrameReader, model: LoadedModel, stages: Stages, ready: queue.Queue[Incoming]) -> None:
    """The reading thread: every batch it prepares goes into the queue, and so does its own end."""
    decoder = BatchDecoder(model.decode_input)
    try:
        while True:
            frame = reader.read()
            if frame is None or frame.kind == STOP:
                ready.put(None)
                return
            if frame.kind != BATCH:
                raise ProtocolError(f"expected BATCH or STOP, got a frame of kind {frame.kind}")
            ready.put(_begin(frame, decoder, model, stages))
            del frame
    except BaseException as error:
        ready.put(error)


def _begin(frame: Frame, decoder: BatchDecoder, model: LoadedModel, stages: Stages) -> PreparedBatch:
    context = copy.copy(model.context)
    rows = bind(frame, decoder, context)
    frame = frame._replace(payload=b"")  # The rows hold what is needed of it.
    try:
        return PreparedBatch(frame, context, stages.begin(rows, context))
    except Exception as error:
        return PreparedBatch(frame, context, None, failure_from(error))


def _finish(writer: FrameWriter, model: LoadedModel, stages: Stages, prepared: PreparedBatch) -> None:
    context = model.context
    context.show(prepared.context._bound)
    answer = prepared.failure
    if answer is None:
        try:
            outputs = stages.finish(prepared.prepared, context)
        except Exception as error:
            answer = failure_from(error)
        else:
            answer = answer_from(outputs, prepared.frame.count, context)
    send_answer(writer, prepared.frame, answer)
