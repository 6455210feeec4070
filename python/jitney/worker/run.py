"""One batch, step by step: bind it to a context, call the handler, turn its result into a frame.

The steps are apart because the loops differ: `loop` takes one batch at a time, `concurrent` many,
`continuous` one step of many at a time.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from jitney.torchserve.failures import PREDICTION_FAILED, BatchFailure, ClientsLeft, check_outputs, failure_of
from jitney.worker.batch import BatchDecoder, Row, read_request_id
from jitney.worker.context import WorkerContext
from jitney.worker.loader import LoadedModel
from jitney.worker.protocol import (
    FAILED,
    FRAME_BYTES_LIMIT,
    REPLY,
    STOP,
    Bytes,
    Frame,
    FrameReader,
    ProtocolError,
    encode_control,
)  # fmt: skip
from jitney.worker.reply import EncodedReply, encode_reply
from jitney.worker.step_times import times_frame
from jitney.worker.writer import FrameWriter, assemble

logger = logging.getLogger(__name__)

IDS_SHOWN = 8
"""Requests that one line of the log names."""

Incoming = Frame | BaseException | None
BatchAnswer = list[Bytes] | BatchFailure


def read_frames(reader: FrameReader, put: Callable[[Incoming], object]) -> None:
    """The work of a reading thread: every frame up to STOP, the end of the stream (None), or the error in its place.

    The server sends no more batches than the worker has slots, which bounds what can wait.
    """
    while True:
        received: Incoming
        try:
            received = reader.read()
        except Exception as error:
            received = error
        put(received)
        if not isinstance(received, Frame) or received.kind == STOP:
            return


def run_batch(frame: Frame, decoder: BatchDecoder, model: LoadedModel) -> BatchAnswer:
    """The payload of the batch's reply, or why it failed as a whole."""
    context = model.context
    rows = bind(frame, decoder, context)
    try:
        outputs = model.entry_point(rows, context)
    except ClientsLeft:
        return unread_answer(frame.count)
    except Exception as error:
        return failure_from(error, context.metas)
    return answer_from(outputs, frame.count, context)


def bind(frame: Frame, decoder: BatchDecoder, context: WorkerContext) -> list[Row]:
    """Makes a frame the context's current batch; returns its rows."""
    rows, metas = decoder.decode(frame.payload, frame.count)
    context.bind_batch(metas, frame.id)
    return rows


def unread_answer(count: int) -> list[Bytes]:
    """The reply to a batch that nobody waits for, since every batch has an answer."""
    return assemble({}, [b""] * count)


def failure_from(error: Exception, metas: Sequence[bytes] | None) -> BatchFailure:
    """The failure to send for a handler's exception; the log gets the traceback."""
    if isinstance(error, ProtocolError):
        raise error  # Headers are parsed when the handler reads them; broken ones are not its fault.
    if not isinstance(error, ClientsLeft):
        print_traceback(f"the handler failed on {name_requests(metas or ())}\n")
    return failure_of(error)


def answer_from(outputs: Any, count: int, context: WorkerContext) -> BatchAnswer:
    """The payload of the reply for what a handler returned, or what is wrong with it as a whole."""
    encoded = isinstance(outputs, EncodedReply)
    failure = None if encoded else check_outputs(outputs, count)
    if failure is not None:
        logger.error("handler returned %s for a batch of %d: %s", describe(outputs), count, failure.message)
        return failure
    parts = outputs if encoded else encode_reply(outputs, context)
    if sum(map(len, parts)) > FRAME_BYTES_LIMIT:
        logger.error("the answers of a batch of %d are over the frame limit", count)
        return BatchFailure("raised", PREDICTION_FAILED)
    return parts


def send_answer(writer: FrameWriter, batch_id: int, count: int, answer: BatchAnswer, times: dict[str, int]) -> None:
    """Sends a batch's REPLY or FAILED, in one write with the TIMES that come before it, if there are any to tell."""
    before = times_frame(batch_id, times)
    if isinstance(answer, BatchFailure):
        writer.send(FAILED, 0, batch_id, (encode_control(answer._asdict()),), before)
    else:
        writer.send(REPLY, count, batch_id, answer, before)


def describe(outputs: Any) -> str:
    """What a handler returned, without its contents."""
    if isinstance(outputs, list):
        return f"a list of {len(outputs)}"
    return f"an object of type {type(outputs).__name__}"


def name_requests(metas: Sequence[bytes]) -> str:
    """The requests of these metas as the log names them: `request ID`, or the first ones of several."""
    ids = [read_request_id(meta) for meta in metas[:IDS_SHOWN]]
    more = f" and {len(metas) - IDS_SHOWN} more" if len(metas) > IDS_SHOWN else ""
    return f"request{'s' if len(metas) > 1 else ''} {', '.join(ids)}{more}"


def print_traceback(before: str = "") -> None:
    """Writes the current exception to stdout in one piece; the server's log takes it from there."""
    sys.stdout.write(before + traceback.format_exc())
    sys.stdout.flush()
