"""A worker's life over one socket: HELLO, LOAD, then batches until STOP or the end of the stream.

It is a plain function over a socket, so tests drive it through a socket pair. Exceptions of the
handler become FAILED frames; SystemExit and KeyboardInterrupt pass through and end the process,
which the server sees as the end of the stream.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import sys
import time
import traceback
from typing import Any

from jitney.worker.batch import BatchDecoder
from jitney.worker.loader import LoadedModel, load_model
from jitney.worker.protocol import (
    BATCH,
    FAILED,
    FRAME_BYTES_LIMIT,
    HELLO,
    LOAD,
    LOAD_FAILED,
    LOADED,
    PROTOCOL_VERSION,
    REPLY,
    STOP,
    Bytes,
    Frame,
    FrameReader,
    ProtocolError,
    Truncated,
    decode_control,
    encode_control,
    send_frame,
)
from jitney.worker.reply import (
    PREDICTION_FAILED,
    BatchFailure,
    check_outputs,
    encode_reply,
    failure_of,
    mentions_cuda,
)

logger = logging.getLogger(__name__)


def serve(sock: socket.socket, token: str = "") -> int:
    """Runs a worker over a connected socket and returns the process's exit status."""
    try:
        return live(sock, token)
    except (ConnectionError, Truncated):
        return 0  # The server is gone, which is no fault of the worker.


def live(sock: socket.socket, token: str) -> int:
    """Introduces the worker, loads its model and answers batches; returns the exit status."""
    reader = FrameReader(sock)
    hello = {
        "protocol": PROTOCOL_VERSION,
        "token": token,
        "pid": os.getpid(),
        "python": platform.python_version(),
    }
    send_control(sock, HELLO, hello)
    frame = reader.read()
    if frame is None or frame.kind == STOP:
        return 0
    if frame.kind != LOAD:
        raise ProtocolError(f"expected LOAD, got a frame of kind {frame.kind}")
    model = load(sock, frame)
    if model is None:
        return 1
    run_batches(sock, reader, model)
    return 0


def load(sock: socket.socket, frame: Frame) -> LoadedModel | None:
    """Loads the model and reports how that went; None if it failed."""
    spec = decode_control(frame.payload)
    started = time.perf_counter()
    try:
        model = load_model(spec)
    except Exception as error:
        print_traceback()  # First: the server may end this process as soon as it has the frame.
        message = "".join(traceback.format_exception_only(type(error), error)).strip()
        send_control(sock, LOAD_FAILED, {"cause": load_failure_cause(error), "message": message})
        return None
    send_control(sock, LOADED, {"seconds": round(time.perf_counter() - started, 6)})
    return model


def load_failure_cause(error: Exception) -> str:
    """The server answers a lack of memory and a runtime error differently from a broken handler."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, RuntimeError):
        return "memory" if mentions_cuda(error) else "runtime"
    return "error"


def run_batches(sock: socket.socket, reader: FrameReader, model: LoadedModel) -> None:
    """Answers batches, one at a time and in order, until the server stops or is gone."""
    decoder = BatchDecoder(model.decode_input)
    while True:
        frame = reader.read()
        if frame is None or frame.kind == STOP:
            return
        if frame.kind != BATCH:
            raise ProtocolError(f"expected BATCH or STOP, got a frame of kind {frame.kind}")
        answer = run_batch(frame, decoder, model)
        if isinstance(answer, BatchFailure):
            send_control(sock, FAILED, answer._asdict(), frame.id)
        else:
            send_frame(sock, REPLY, frame.count, frame.id, answer)
        del frame, answer  # They may be large, and the wait for the next batch long.


def run_batch(frame: Frame, decoder: BatchDecoder, model: LoadedModel) -> list[Bytes] | BatchFailure:
    """The payload of the batch's reply, or why it failed as a whole."""
    rows, metas = decoder.decode(frame.payload, frame.count)
    context = model.context
    context.bind_batch(metas)
    try:
        outputs = model.entry_point(rows, context)
    except ProtocolError:
        raise  # Headers are parsed when the handler asks for them; that they are broken is not its fault.
    except Exception as error:
        print_traceback()
        return failure_of(error)
    failure = check_outputs(outputs, frame.count)
    if failure is not None:
        logger.error("handler returned %s for a batch of %d: %s", describe(outputs), frame.count, failure.message)
        return failure
    parts = encode_reply(outputs, context)
    if sum(map(len, parts)) > FRAME_BYTES_LIMIT:
        logger.error("the answers of a batch of %d are over the frame limit", frame.count)
        return BatchFailure("raised", PREDICTION_FAILED)
    return parts


def describe(outputs: Any) -> str:
    """What a handler returned, without its contents."""
    if isinstance(outputs, list):
        return f"a list of {len(outputs)}"
    return f"an object of type {type(outputs).__name__}"


def print_traceback() -> None:
    """Writes the current exception to stdout in one piece; the server's log takes it from there."""
    sys.stdout.write(traceback.format_exc())
    sys.stdout.flush()


def send_control(sock: socket.socket, kind: int, value: dict[str, Any], frame_id: int = 0) -> None:
    """Sends a control frame."""
    send_frame(sock, kind, 0, frame_id, (encode_control(value),))
