"""Continuous batching: one step of all live jobs at a time (`continuousBatching`).

The server hands over one job per BATCH, as many as the worker has slots; this loop calls the
handler again and again with all of them, as TorchServe does: a new job brings its parameters, a
continued one an empty row. After each step `context.stopping_criteria` decides which answers are
complete. New jobs join between two steps, and jobs whose client has disconnected are dropped.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

from jitney.torchserve.failures import BatchFailure, check_outputs
from jitney.torchserve.threads import THREADS
from jitney.worker.batch import BatchDecoder, Row, read_headers, read_request_id
from jitney.worker.context import STREAM_NEXT
from jitney.worker.loader import LoadedModel
from jitney.worker.protocol import (
    BATCH,
    CANCEL,
    FAILED,
    REPLY,
    SHARE,
    STOP,
    Bytes,
    Frame,
    FrameReader,
    ProtocolError,
    workers_of,
)
from jitney.worker.reply import encode_item, failure_of_step
from jitney.worker.run import (
    Incoming,
    describe,
    failure_from,
    logger,
    read_frames,
    run_batch,
    send_answer,
    unread_answer,
)
from jitney.worker.step_times import times_frame
from jitney.worker.writer import FrameWriter, assemble


def run_continuously(writer: FrameWriter, reader: FrameReader, model: LoadedModel) -> None:
    """Steps through live jobs until the server stops, when all are finished, or is gone."""
    incoming: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
    clients = model.context.clients

    def put(received: Incoming) -> None:
        if isinstance(received, Frame) and received.kind == CANCEL:
            clients.note(received)  # The step that runs may ask.
        incoming.put(received)

    threading.Thread(target=read_frames, args=(reader, put), daemon=True).start()
    try:
        _LiveJobs(writer, model).run(incoming)
    finally:
        # A blocked read keeps the socket open even after it was closed; the server must see the end.
        writer.shut_down()


class _Job:
    """One live request."""

    def __init__(self, batch_id: int, row: Row, meta: bytes) -> None:
        self.batch_id = batch_id
        self.row = row
        """What the client sent; empty once the handler has seen it."""
        self.meta = meta
        self.request_id = read_request_id(meta)
        self.streams = False
        """A piece of its answer is out, and with it its status and headers."""


class _LiveJobs:
    """The jobs of one worker; each step runs all of them."""

    def __init__(self, writer: FrameWriter, model: LoadedModel) -> None:
        self._writer = writer
        self._model = model
        self._context = model.context
        self._decoder = BatchDecoder(model.reader_for)
        self._live: list[_Job] = []
        self._stopping = False

    def run(self, incoming: queue.SimpleQueue[Incoming]) -> None:
        while self._take_in(incoming):
            if self._live:
                self._step()

    # Coming and going

    def _take_in(self, incoming: queue.SimpleQueue[Incoming]) -> bool:
        """Takes new frames, and waits for one only if no job is live; False when there is nothing left to do."""
        while not self._stopping and (not self._live or not incoming.empty()):
            received = incoming.get()
            if received is None:
                return False  # The server is gone; unfinished work has no receiver.
            if isinstance(received, BaseException):
                raise received
            self._handle(received)
        return bool(self._live) or not self._stopping

    def _handle(self, frame: Frame) -> None:
        if frame.kind == BATCH:
            self._join(frame)
        elif frame.kind == CANCEL:
            self._cancel(frame.id)
        elif frame.kind == SHARE:
            THREADS.take(workers_of(frame))
        elif frame.kind == STOP:
            self._stopping = True
        else:
            raise ProtocolError(f"expected BATCH, CANCEL or STOP, got a frame of kind {frame.kind}")

    def _join(self, frame: Frame) -> None:
        rows, metas = self._decoder.decode(frame.payload, frame.count)
        if len(rows) != 1 or _is_description(metas[0]):
            # What is no job of its own is answered at once, apart from the live ones.
            send_answer(self._writer, frame.id, frame.count, run_batch(frame, self._decoder, self._model), {})
        else:
            self._live.append(_Job(frame.id, rows[0], metas[0]))

    def _cancel(self, batch_id: int) -> None:
        """Drops a job whose client has disconnected; it may be finished already."""
        for job in self._live:
            if job.batch_id == batch_id:
                logger.info("Connection to client got closed; Removing job: %s", job.request_id)
                self._forget(job)
                self._writer.send(REPLY, 1, batch_id, unread_answer(1))
        self._live = [job for job in self._live if job.batch_id != batch_id]
        self._context.clients.forget(batch_id)

    def _forget(self, job: _Job) -> None:
        """Removes a job from `context.cache`: handlers themselves see only the end of jobs that succeed."""
        cache = getattr(self._context, "cache", None)
        if isinstance(cache, dict):
            cache.pop(job.request_id, None)

    # One step

    def _step(self) -> None:
        jobs, context = self._live, self._context
        context.bind_batch([job.meta for job in jobs])
        context.batch_ids = [job.batch_id for job in jobs]
        rows = [job.row for job in jobs]
        for job in jobs:
            job.row = {}
        try:
            outputs = self._model.entry_point(rows, context)
            failure = check_outputs(outputs, len(jobs))
            if failure is not None:
                logger.error("handler returned %s for a step of %d jobs", describe(outputs), len(jobs))
        except Exception as error:
            failure = failure_from(error, context.metas)
        if failure is not None:
            self._fail(failure)
            return
        self._live = [job for idx, job in enumerate(jobs) if self._send(idx, job, outputs[idx])]
        self._model.after_batch(lambda: bool(self._live))

    def _fail(self, failure: BatchFailure) -> None:
        """Fails every live job: after a failed step the handler's state of them is unknown."""
        for job in self._live:
            self._forget(job)
            self._writer.send_control(FAILED, failure._asdict(), job.batch_id)
        self._live = []

    def _send(self, idx: int, job: _Job, output: Any) -> bool:
        """Sends a job's part of a step; True if there is more to come."""
        try:
            more = self._goes_on(idx, output)
        except Exception as error:
            self._forget(job)
            self._writer.send_control(FAILED, failure_from(error, [job.meta])._asdict(), job.batch_id)
            return False
        if more is not None:
            self._context.set_response_header(idx, STREAM_NEXT, "true" if more else "false")
        job.streams |= idx in self._context.streamed
        meta, body, failed = encode_item(output, self._context.touched_requests.get(idx))
        if failed or not more:
            if failed:
                self._forget(job)
            self._finish(job, meta, body, failed)
            return False
        self._writer.send_piece(job.batch_id, b"" if job.streams else meta, body)
        job.streams = True
        return True

    def _finish(self, job: _Job, meta: bytes, body: Bytes, failed: bool) -> None:
        if failed and job.streams:
            # Half an answer cannot become another one: its stream breaks off.
            self._writer.send_control(FAILED, failure_of_step(body)._asdict(), job.batch_id)
        else:
            told = times_frame(job.batch_id, self._model.facts_to_tell())
            self._writer.send(REPLY, 1, job.batch_id, assemble({0: meta} if meta else {}, [body]), told)

    def _goes_on(self, idx: int, output: Any) -> bool | None:
        """The result of the job's stopping criterion: True to go on, False at the end, None without a stream."""
        criteria = self._context.stopping_criteria
        criterion = criteria[idx] if criteria is not None else None
        if criterion is None:
            return None
        stop = criterion(output)
        return None if stop is None else not stop


def _is_description(meta: bytes) -> bool:
    return b"describe" in meta and read_headers(meta).get("describe") == "True"
