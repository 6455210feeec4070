"""Micro-batching: a batch is cut into small ones that run through a handler's stages like on a belt.

`handler.handle = MicroBatching(handler, micro_batch_size)` replaces the handler's own `handle`. Each
stage has threads and a queue; results are put together in the order of the batch. An error in a stage
ends the call with that error, after every micro-batch has come out, so that nothing of one batch is on
the belt when the next one starts. Descriptions and explanations take the handler's own way.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ts.torch_handler.profiling import profiler_enabled
from ts.torch_handler.stages import asks

HANDLER_METHODS = ["preprocess", "inference", "postprocess"]
POLL_SECONDS = 0.5
"""How soon an idle thread notices that it is not wanted any more."""


class _Piece(NamedTuple):
    """A micro-batch on its way: its position, and its data or what went wrong."""

    position: int
    data: Any
    error: Exception | None = None


class WorkerThread(threading.Thread):
    """Takes pieces from one queue, runs a stage, and puts them into the next."""

    def __init__(
        self, owner: MicroBatching, stage: str, source: queue.Queue[_Piece], sink: queue.Queue[_Piece]
    ) -> None:
        super().__init__(name=f"micro-batching-{stage}", daemon=True)
        self.owner, self.stage, self.source, self.sink = owner, stage, source, sink
        self.stopping = threading.Event()

    def run(self) -> None:
        """Works until it is stopped."""
        while not self.stopping.is_set():
            try:
                piece = self.source.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            self.sink.put(self._worked(piece))

    def _worked(self, piece: _Piece) -> _Piece:
        if piece.error is not None:
            return piece
        self.owner.current.index = piece.position
        try:
            return _Piece(piece.position, getattr(self.owner.handler, self.stage)(piece.data))
        except Exception as error:
            return _Piece(piece.position, None, error)

    def stop(self) -> None:
        """Asks the thread to end."""
        self.stopping.set()


class MicroBatching:
    """A callable that stands in for a handler's `handle`."""

    def __init__(
        self, parent_handler: Any, micro_batch_size: int = 1, parallelism: dict[str, int] | None = None
    ) -> None:
        self.handler = parent_handler
        self.micro_batch_size = micro_batch_size
        self.current = threading.local()
        self.queues: list[queue.Queue[_Piece]] = [queue.Queue() for _ in range(len(HANDLER_METHODS) + 1)]
        self.thread_groups: dict[str, list[WorkerThread]] = {stage: [] for stage in HANDLER_METHODS}
        self._parallelism = dict.fromkeys(HANDLER_METHODS, 1)
        self.parallelism = parallelism or {}

    @property
    def parallelism(self) -> dict[str, int]:
        """Threads per stage."""
        return self._parallelism

    @parallelism.setter
    def parallelism(self, wanted: dict[str, int] | None) -> None:
        for stage, count in (wanted or {}).items():
            if stage not in self._parallelism:
                raise ValueError(f"micro-batching: {stage!r} is no stage; the stages are {HANDLER_METHODS}")
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"micro-batching: {stage} needs at least one thread, not {count!r}")
            self._parallelism[stage] = count
        for place, stage in enumerate(HANDLER_METHODS):
            self._resize(place, stage, self._parallelism[stage])

    def _resize(self, place: int, stage: str, count: int) -> None:
        group = self.thread_groups[stage]
        while len(group) > count:
            group.pop().stop()
        while len(group) < count:
            group.append(WorkerThread(self, stage, self.queues[place], self.queues[place + 1]))
            group[-1].start()

    def shutdown(self) -> None:
        """Ends all threads and waits for them."""
        threads = [thread for group in self.thread_groups.values() for thread in group]
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()
        self.thread_groups = {stage: [] for stage in HANDLER_METHODS}

    def get_micro_batch_idx(self) -> int | None:
        """The position of the micro-batch the calling thread works on, if it works on one."""
        return getattr(self.current, "index", None)

    def handle(self, data: list[Any]) -> list[Any]:
        """Runs a batch through the stages."""
        size = max(1, self.micro_batch_size)
        pieces = [_Piece(place, data[first : first + size]) for place, first in enumerate(range(0, len(data), size))]
        for piece in pieces:
            self.queues[0].put(piece)
        done = sorted((self.queues[-1].get() for _ in pieces), key=lambda piece: piece.position)
        for piece in done:
            if piece.error is not None:
                raise piece.error
        return [output for piece in done for output in piece.data]

    def warm_up(self, progress: Callable[[int, int, str], None]) -> Any:
        """Warms the handler's model up, if the handler can."""
        own = getattr(self.handler, "warm_up", None)
        return None if own is None else own(progress)

    def __call__(self, data: list[Any], context: Any) -> Any:
        """Answers a batch in the handler's place."""
        started = time.perf_counter()
        self.handler.context = context
        output = self._answer(data, context)
        metrics = getattr(context, "metrics", None)
        if metrics is not None:
            metrics.add_time("HandlerTime", round((time.perf_counter() - started) * 1000, 2), None, "ms")
        return output

    def _answer(self, data: list[Any], context: Any) -> Any:
        if asks(context, "describe"):
            return [self.handler.describe_handle()]
        if asks(context, "explain"):
            return self.handler.explain_handle(self.handler.preprocess(data), data)
        if profiler_enabled() and hasattr(self.handler, "_profiled"):
            return self.handler._profiled(lambda: self.handle(data))
        return self.handle(data)
