"""Where overlapping batches come in: read by the thread that has the time.

While the worker holds batches a thread of its own reads, so that the next one comes in meanwhile. When it holds none
the main thread reads the next one itself: a batch that is alone then needs no other thread at all, and to hand a batch
from thread to thread takes longer than some models do.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from jitney.torchserve.failures import BatchFailure
from jitney.torchserve.threads import THREADS
from jitney.worker.batch import BatchDecoder, Row
from jitney.worker.context import BoundBatch
from jitney.worker.left_clients import LeftClients
from jitney.worker.protocol import BATCH, CANCEL, SHARE, STOP, FrameReader, ProtocolError, workers_of
from jitney.worker.step_times import StepTimes, now

END_SECONDS = 5.0
"""How long the end waits for the reading thread, which has nothing more to wait for itself."""


class HeldBatch:
    """A batch on its way through the steps."""

    __slots__ = ("begun", "bound", "count", "failure", "finished", "made_up", "times", "wait", "work")

    def __init__(self, rows: list[Row], bound: BoundBatch, began: float, made_up: bool = False) -> None:
        self.bound = bound
        self.made_up = made_up
        """Whether nobody sent it."""
        self.count = len(rows)
        self.work: Any = rows
        """What the last step made of it."""
        self.failure: BatchFailure | None = None
        self.begun = False
        self.finished = False
        self.wait: Callable[[], Any] | None = None
        """Waits for the outputs of a model that is still working on them."""
        self.times = StepTimes(began)

    def launched(self) -> None:
        """The step is over that gives the batch to the model; its result says if the outputs are there."""
        if self.failure is not None or not getattr(self.work, "started", True):
            return  # A model that was not started runs when the batch is finished.
        wait = getattr(self.work, "wait", None)
        if callable(wait) and getattr(self.work, "done", True) is not None:
            self.wait = wait
        else:
            self.times.got_outputs(now())


Incoming = HeldBatch | BaseException | None
"""A batch, the error that ends the worker, or the end of the stream."""


class Intake:
    """Reads batches, at most one for each slot, on one thread at a time."""

    def __init__(self, reader: FrameReader, decoder: BatchDecoder, clients: LeftClients, slots: int) -> None:
        self._reader = reader
        self._clients = clients
        self._decoder = decoder
        self._free_slots: SimpleQueue[None] = SimpleQueue()
        for _ in range(slots):
            self._free_slots.put(None)
        self._reading = threading.Lock()
        """Held by the thread that reads."""
        self._ended = False
        self.taken = 0
        """The batches that came in until now."""
        # The reading thread waits here. What comes wakes it only while the watch is set, and once; the bell always.
        self._watch = select.epoll() if hasattr(select, "epoll") and hasattr(os, "eventfd") else None
        if self._watch is not None:
            self._watch.register(reader.fileno(), select.EPOLLONESHOT)
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._watch.register(self._bell, select.EPOLLIN)

    def take_if_idle(self, is_idle: Callable[[], bool]) -> tuple[Incoming] | None:
        """The next batch, read here, if the worker holds none; None if the reading thread is to read it."""
        if self._watch is None or not self._reading.acquire(blocking=False):
            return None
        try:
            if self._ended or not is_idle():
                return None
            self.unset_watch()
            received = self._take()
            self.set_watch()
            if self._reader.buffered:  # Another batch, or its beginning, came together with this one.
                os.eventfd_write(self._bell, 1)
            return (received,)
        finally:
            self._reading.release()

    def take_all(self, give: Callable[[Incoming], None]) -> None:
        """The work of the reading thread: gives away what comes while the main thread is busy, up to the end."""
        while True:
            if self._watch is not None:
                self._watch.poll()
            with self._reading:
                self._hush()
                if self._ended:
                    return
                if self.is_readable() and not self._take_there(give):
                    return

    def _take_there(self, give: Callable[[Incoming], None]) -> bool:
        """Reads what is there; False after the end."""
        while True:
            received = self._take()
            give(received)
            if not isinstance(received, HeldBatch):
                return False
            if self._watch is not None and not self._reader.buffered:
                self.set_watch()
                return True

    def _take(self) -> Incoming:
        try:
            held = self._read()
        except BaseException as error:
            self._ended = True
            return error
        self._ended = self._ended or held is None
        return held

    def _read(self) -> HeldBatch | None:
        frame = self._reader.read()
        while frame is not None and frame.kind in (CANCEL, SHARE):
            if frame.kind == CANCEL:
                self._clients.note(frame)
            else:
                THREADS.note(workers_of(frame))
            frame = self._reader.read()
        if frame is None or frame.kind == STOP:
            return None
        if frame.kind != BATCH:
            raise ProtocolError(f"expected BATCH or STOP, got a frame of kind {frame.kind}")
        rows, metas = self._decoder.decode(frame.payload, frame.count)
        return self.take(HeldBatch(rows, BoundBatch(metas, frame.id), self._reader.frame_began))

    def take(self, held: HeldBatch) -> HeldBatch:
        """Counts a batch in, and gives it a slot."""
        waits = self._free_slots.empty()  # It never does: the server sends no more batches than there are slots.
        self._free_slots.get()
        if waits:
            held.times.began = now()
        self.taken += 1
        return held

    def is_readable(self) -> bool:
        """Whether there is something to read, which the main thread has not read meanwhile."""
        return self._watch is None or self._reader.has_more

    def _hush(self) -> None:
        with contextlib.suppress(BlockingIOError):  # Nobody rang.
            if self._watch is not None:
                os.eventfd_read(self._bell)

    def unset_watch(self) -> None:
        """What comes next does not wake the reading thread; called before the main thread reads."""
        if self._watch is not None:
            self._watch.modify(self._reader.fileno(), select.EPOLLONESHOT)

    def set_watch(self) -> None:
        """What comes next is for the reading thread."""
        if self._watch is not None:
            self._watch.modify(self._reader.fileno(), select.EPOLLIN | select.EPOLLONESHOT)

    def answered(self) -> None:
        """A batch is answered, which makes room for another."""
        self._free_slots.put(None)

    def end(self, reading: threading.Thread) -> None:
        """Wakes the reading thread for the last time; the connection was shut down before."""
        self._ended = True
        self._free_slots.put(None)
        if self._watch is not None:
            os.eventfd_write(self._bell, 1)
            reading.join(END_SECONDS)
            if not reading.is_alive():
                self._watch.close()
                os.close(self._bell)
