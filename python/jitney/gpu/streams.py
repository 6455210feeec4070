"""The streams of a worker on a GPU: one to prepare batches on, one for the model, one for the answers.

Work of one stream runs beside that of another, so the next batch is prepared while this one is in the model. The
small kernels of an answer come first, then those of a preparation: behind the model's large ones each of them would
wait, which takes three times as long as preparing does alone.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

MODEL_PRIORITY = 0
PREPARATION_PRIORITY = -1
ANSWER_PRIORITY = -2


class DeviceStreams:
    """Where there is no GPU: everything runs where it is called, and is there when the call returns."""

    model: Any = None
    """The stream that the model runs on, where there is one."""

    def preparing(self) -> AbstractContextManager[Any]:
        """Inside, batches are prepared."""
        return contextlib.nullcontext()

    def running(self, ready: Any = None) -> AbstractContextManager[Any]:
        """Inside, the model runs, after `ready`, the mark of what it needs."""
        return contextlib.nullcontext()

    def answering(self, done: Any = None) -> AbstractContextManager[Any]:
        """Inside, answers are made of what is there since `done`; waits for it."""
        return contextlib.nullcontext()

    def mark(self) -> Any:
        """Marks the end of what was asked for so far; None if it is there already."""
        return None

    def follow(self, mark: Any) -> None:
        """What is asked for next comes after the mark."""


class CudaStreams(DeviceStreams):
    """Streams of one CUDA device."""

    def __init__(self, device: Any) -> None:
        self.cuda = importlib.import_module("torch").cuda
        self.preparation = self.cuda.Stream(device, priority=PREPARATION_PRIORITY)
        self.model = self.cuda.Stream(device, priority=MODEL_PRIORITY)
        self.answers = self.cuda.Stream(device, priority=ANSWER_PRIORITY)

    def preparing(self) -> AbstractContextManager[Any]:
        """Inside, the stream for preparing is the current one."""
        return self.cuda.stream(self.preparation)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def running(self, ready: Any = None) -> Iterator[None]:
        """Inside, the model's stream is the current one; nothing waits here."""
        with self.cuda.stream(self.model):
            if ready is not None:
                self.model.wait_event(ready)
            yield

    @contextlib.contextmanager
    def answering(self, done: Any = None) -> Iterator[None]:
        """Inside, the stream for answers is the current one. At the end everything asked for there is done: who gets
        the answers uses them on another stream, and what they were made of may be overwritten."""
        if done is not None:
            done.synchronize()
        with self.cuda.stream(self.answers):
            yield
        self.answers.synchronize()

    def mark(self) -> Any:
        """An event on the current stream, with its time. Who waits for it sleeps, so that waiting costs no core."""
        event = self.cuda.Event(enable_timing=True, blocking=True)
        event.record()
        return event

    def follow(self, mark: Any) -> None:
        """The current stream goes on after the mark."""
        if mark is not None:
            self.cuda.current_stream().wait_event(mark)


NO_STREAMS = DeviceStreams()


def streams_of(device: Any) -> DeviceStreams:
    """The streams of a torch device."""
    return CudaStreams(device) if getattr(device, "type", None) == "cuda" else NO_STREAMS
