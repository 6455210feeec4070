"""From a handler's answer to a REPLY, or from its exception to a FAILED.

A reply has one item per request: a plain one (status 200, no headers) needs no meta at all,
which is nearly every item of nearly every model. An output that cannot be written fails its
own request only, and so does a PredictionException that a handler returns in place of an answer;
one that it raises fails the batch, and the server decides what to retry.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

from jitney.torchserve.bodies import UNSUPPORTED_OUTPUT, UnsupportedOutput, encode_output
from jitney.torchserve.context import RequestProcessor
from jitney.torchserve.failures import PREDICTION_FAILED, BatchFailure, PredictionException, status_of
from jitney.worker.context import WorkerContext
from jitney.worker.protocol import Bytes
from jitney.worker.writer import ITEM_FAILED, assemble, encode_failed, encode_meta

logger = logging.getLogger(__name__)

CAUSE_RAISED, CAUSE_PREDICTION, CAUSE_UNSUPPORTED_OUTPUT = 1, 3, 6
ITEM_FAILED_STATUS = 503


class EncodedReply(list[Bytes]):
    """The payload of a REPLY that an entry point made itself."""


def encode_reply(outputs: list[Any], context: WorkerContext) -> list[Bytes]:
    """The payload of a REPLY in parts: the table, then meta and body of each item."""
    metas: dict[int, bytes] = {}  # Only those that are not empty.
    try:
        bodies = [encode_output(output) for output in outputs]
    except UnsupportedOutput:
        bodies = encode_each(outputs, metas)
    context.end_streams()
    for idx, processor in context.touched_requests.items():
        if idx < len(bodies) and idx not in metas:
            add_meta(idx, processor, metas, bodies)
    return assemble(metas, bodies)


def encode_each(outputs: list[Any], metas: dict[int, bytes]) -> list[Bytes]:
    """All bodies; an output without a byte form fails its own item and no other."""
    bodies: list[Bytes] = []
    for idx, output in enumerate(outputs):
        if isinstance(output, PredictionException):
            metas[idx] = failed_meta(CAUSE_PREDICTION, status_of(output))
            bodies.append(str(output.message).encode(errors="replace"))
            continue
        try:
            bodies.append(encode_output(output))
        except UnsupportedOutput as error:
            logger.warning("output %d of the batch has no byte form: %r", idx, error.__cause__)
            metas[idx] = failed_meta(CAUSE_UNSUPPORTED_OUTPUT)
            bodies.append(UNSUPPORTED_OUTPUT.encode())
    return bodies


def add_meta(idx: int, processor: RequestProcessor, metas: dict[int, bytes], bodies: list[Bytes]) -> None:
    """Adds the meta of an answered item, or fails it if its status or headers cannot be written."""
    try:
        meta = encode_meta(processor)
    except Exception:
        logger.warning("status or headers of answer %d are unusable\n%s", idx, traceback.format_exc())
        meta, bodies[idx] = failed_meta(CAUSE_RAISED), PREDICTION_FAILED.encode()
    if meta:
        metas[idx] = meta


def encode_item(output: Any, processor: RequestProcessor | None) -> tuple[bytes, Bytes, bool]:
    """Meta and body of one answer by itself, and whether it failed."""
    metas: dict[int, bytes] = {}
    bodies = encode_each([output], metas)
    if not metas and processor is not None:
        add_meta(0, processor, metas, bodies)
    meta = metas.get(0, b"")
    return meta, bodies[0], meta[:1] == bytes((ITEM_FAILED,))


def failure_of_step(message: Bytes) -> BatchFailure:
    """The failure of an answer of which a part was sent already."""
    return BatchFailure("raised", bytes(message).decode(errors="replace"), ITEM_FAILED_STATUS)


def failed_meta(cause: int, status: int = ITEM_FAILED_STATUS) -> bytes:
    """The meta of an item that failed alone; its body is the message."""
    return encode_failed(cause, status if 100 <= status <= 999 else 500)
