"""A worker over one socket: HELLO, LOAD, then batches until STOP or the end of the stream.

It is a plain function over a socket, so tests drive it through a socket pair. Exceptions of the
handler become FAILED frames; SystemExit and KeyboardInterrupt pass through and end the process,
which the server sees as the end of the stream.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from typing import Any, NamedTuple

from jitney.torchserve.failures import mentions_cuda
from jitney.torchserve.threads import THREADS
from jitney.worker.batch import BatchDecoder
from jitney.worker.continuous import run_continuously
from jitney.worker.garbage import Collector
from jitney.worker.gpus import select_gpus
from jitney.worker.left_clients import FramesInTurn
from jitney.worker.loader import LoadedModel, load_model
from jitney.worker.overlap import OverlappedBatches, stages_of
from jitney.worker.process_group import ProcessGroup, rank_count
from jitney.worker.protocol import (
    BATCH,
    HELLO,
    LOAD,
    LOAD_FAILED,
    LOADED,
    PROGRESS,
    PROTOCOL_VERSION,
    STOP,
    FrameReader,
    ProtocolError,
    Truncated,
    decode_control,
)  # fmt: skip
from jitney.worker.run import print_traceback, run_batch, send_answer
from jitney.worker.whole_way import go_the_whole_way, run_one_by_one
from jitney.worker.writer import FrameWriter


def serve(sock: socket.socket, token: str = "") -> int:
    """Runs a worker over a connected socket and returns the process's exit status."""
    try:
        return run_worker(sock, token)
    except (ConnectionError, Truncated):
        return 0  # The server is gone, which is no fault of the worker.


def run_worker(sock: socket.socket, token: str) -> int:
    """Introduces the worker, loads its model and answers batches; returns the exit status."""
    reader, writer = FrameReader(sock), FrameWriter(sock)
    hello = {"protocol": PROTOCOL_VERSION, "token": token, "pid": os.getpid(), "python": sys.version.split()[0]}
    writer.send_control(HELLO, hello)
    frame = reader.read()
    if frame is None or frame.kind == STOP:
        return 0
    if frame.kind != LOAD:
        raise ProtocolError(f"expected LOAD, got a frame of kind {frame.kind}")
    spec = select_gpus(decode_control(frame.payload))
    if isinstance(spec.get("calls"), dict):
        spec["calls"]["socket"] = sock  # Calls to other models go to the same address.
    with contextlib.closing(ProcessGroup(spec)) as group:
        worker = load(writer, reader, spec, group)
        if worker is None:
            return 1
        try:
            run_model(*worker)
        finally:
            model = worker.model
            if model.collector is not None:
                model.collector.end()
            if model.close is not None:
                model.close()
    return 0


class LoadedWorker(NamedTuple):
    """A model that is loaded and warm, and where its batches come from."""

    writer: FrameWriter
    reader: FrameReader
    model: LoadedModel
    overlapped: OverlappedBatches | None
    """What takes its batches, where their steps overlap."""


def run_model(
    writer: FrameWriter, reader: FrameReader, model: LoadedModel, overlapped: OverlappedBatches | None
) -> None:
    """Answers batches in the way that fits the model."""
    model.context.frame_writer = writer
    if overlapped is not None:
        overlapped.run(model)
    else:
        MODES[mode_of(model)](writer, reader, model)


def mode_of(model: LoadedModel) -> str:
    """How the model takes its batches: as the server says, unless it awaits others and must hear when to stop, or lets
    some of its calls run beside the others."""
    besides = ("awaits_others", "is_mixed")
    return "concurrent" if any(getattr(model.service, name, False) is True for name in besides) else model.mode


def takes_views(service: Any) -> bool:
    """Whether the values of a batch may be views of its memory: no code that expects a `bytearray` gets to see them."""
    takes = getattr(service, "takes_views", None)
    return callable(takes) and takes() is True


def load(writer: FrameWriter, reader: FrameReader, spec: dict[str, Any], group: ProcessGroup) -> LoadedWorker | None:
    """Loads the model and reports how that went; None if it failed."""
    started = time.perf_counter()
    try:
        group.start()
        THREADS.begin(spec)
        model = load_model(spec, lambda done, of, what: tell_progress(writer, done, of, what))
        group.wait_until_loaded()
        worker = warmed(LoadedWorker(writer, group.reader(reader), model, None), rank_count(spec) == 1)
        collector = Collector()
        collector.begin(spec.get("garbage_collection"))
    except Exception as error:
        message = "".join(traceback.format_exception_only(type(error), error)).strip()
        failure = {"cause": load_failure_cause(error), "message": message}
        if spec.get("rank"):
            print_traceback()  # First: rank 0 may end this process as soon as it has the frame.
        else:
            failure["traceback"] = traceback.format_exc()[-TRACEBACK_CHARS:]
        writer.send_control(LOAD_FAILED, failure)
        return None
    about = {"seconds": round(time.perf_counter() - started, 6), **model.about}
    if worker.overlapped is not None:
        about["slots"] = worker.overlapped.slots
        worker.overlapped.start_reading()
    writer.send_control(LOADED, {**about, **model.gpu_facts()})
    return worker._replace(model=model._replace(collector=collector, samples=()))


def warmed(worker: LoadedWorker, is_alone: bool) -> LoadedWorker:
    """The worker with the threads that it needs, after made-up batches went the whole way of a request through them.
    Not where several processes form one worker: each of them would choose by itself what to run."""
    model, stages = worker.model, stages_of(worker.model)
    if takes_views(model.service):
        worker.reader.give_views()
    if stages is not None:
        overlapped = OverlappedBatches(worker.writer, worker.reader, model, stages)
        worker = worker._replace(overlapped=overlapped)
        if is_alone:
            go_the_whole_way(model, overlapped.run_made_up, stages.slots)
    elif is_alone and mode_of(model) == "single":
        go_the_whole_way(model, run_one_by_one(model), 1)
    return worker


def tell_progress(writer: FrameWriter, done: int, of: int, what: str) -> None:
    """Tells the server about a step of warming up, which gives it more time for the next one."""
    writer.send_control(PROGRESS, {"done": done, "of": of, "what": what})


TRACEBACK_CHARS = 64 * 1024
"""Characters of a traceback that are sent, from its end."""


def load_failure_cause(error: Exception) -> str:
    """The server answers a lack of memory and a runtime error differently from a broken handler."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, RuntimeError):
        return "memory" if mentions_cuda(error) else "runtime"
    return "error"


def run_batches(writer: FrameWriter, reader: FrameReader, model: LoadedModel) -> None:
    """Answers batches, one at a time and in order, until the server stops or is gone."""
    decoder = BatchDecoder(model.reader_for)
    clients = model.context.clients
    frames = FramesInTurn(reader, clients)
    while True:
        frame = frames.read()
        if frame is None or frame.kind == STOP:
            return
        if frame.kind != BATCH:
            raise ProtocolError(f"expected BATCH or STOP, got a frame of kind {frame.kind}")
        answer = run_batch(frame, decoder, model)
        send_answer(writer, frame.id, frame.count, answer, model.facts_to_tell())
        clients.forget_until(frame.id)
        del frame, answer  # They may be large, and the wait for the next batch long.
        model.after_batch(frames.has_more)


def run_coroutines(writer: FrameWriter, reader: FrameReader, model: LoadedModel) -> None:
    """Answers batches of coroutines, whose library most workers never need."""
    from jitney.worker.concurrent import run_concurrently

    run_concurrently(writer, reader, model)


MODES = {"single": run_batches, "concurrent": run_coroutines, "continuous": run_continuously}
"""How a worker takes its batches: one after another, many at a time, or many together step by step."""
