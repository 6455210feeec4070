"""Records what a call does on a GPU, to do it again with one launch.

`Capture` is the little that the rest needs to know of it, so that the rest can be tested without a GPU.
"""

from __future__ import annotations

import abc
import contextlib
import inspect
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

from jitney.gpu.streams import MODEL_PRIORITY
from jitney.gpu.trees import torch

WARM_RUNS = 3
"""Libraries choose their kernels, and TorchScript its plan, in the first runs."""
TIMED_RUNS = 5


class Captured(NamedTuple):
    """A recorded call: `replay` does it again and fills the same outputs."""

    replay: Callable[[], None]
    outputs: Any


class Capture(abc.ABC):
    """Records calls and replays them, one at a time."""

    @abc.abstractmethod
    def warm(self, call: Callable[[], Any], runs: int = WARM_RUNS) -> Any:
        """Makes a call a few times before it is recorded; returns its last result, which is there."""

    @abc.abstractmethod
    def record(self, call: Callable[[], Any]) -> Captured:
        """Records a call that was warmed up. Raises if it cannot be recorded; then nothing is left of the attempt."""

    @abc.abstractmethod
    def running(self) -> AbstractContextManager[Any]:
        """Inside, recorded calls are replayed and their inputs and outputs copied: after what the caller asked for."""

    @abc.abstractmethod
    def microseconds(self, call: Callable[[], Any]) -> int:
        """What a call takes."""

    @abc.abstractmethod
    def memory(self) -> int:
        """Bytes of the device that recorded calls hold."""

    def aside(self) -> Capture:
        """Another one that records beside running replays; what it recorded is replayed by this one."""
        return self


class CudaCapture(Capture):
    """CUDA graphs. All share one pool of memory, so the outputs of one are valid until another is replayed."""

    failed: ClassVar[list[Any]] = []
    """Graphs whose recording broke. The allocator may ask them for ever whether they are being recorded."""

    def __init__(self, device: Any, stream: Any, pool: Any = None) -> None:
        self.device, self.stream = device, stream
        with torch.cuda.device(device):
            self.pool = pool or torch.cuda.graph_pool_handle()
            self.side = torch.cuda.Stream(device, priority=MODEL_PRIORITY)
        self.pools = {tuple(self.pool)}

    def warm(self, call: Callable[[], Any], runs: int = WARM_RUNS) -> Any:
        """Runs the call on the stream that it will be recorded on."""
        result = None
        self.side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.side):
            for _ in range(runs):
                result = call()
        self.side.synchronize()
        return result

    def record(self, call: Callable[[], Any]) -> Captured:
        """Records the call into a graph. Other threads may go on using the device meanwhile."""
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.current_stream(self.device)
        try:
            with torch.cuda.device(self.device), torch.cuda.graph(graph, pool=self.pool, stream=self.side, **MODE):
                outputs = call()
        except Exception as error:
            torch.cuda.set_stream(before)  # Where the recording broke, it stays on its own.
            self._recover(graph)
            # Ending a broken recording raises too, and its error says nothing of the cause.
            raise (error.__context__ or error) from None
        return Captured(graph.replay, outputs)

    def _recover(self, graph: Any) -> None:
        """After a failed recording: a stream that never failed, and an allocator that records no more."""
        self.failed.append(graph)
        with contextlib.suppress(Exception):
            torch._C._cuda_endAllocateToPool(self.device.index or 0, self.pool)
        with contextlib.suppress(Exception):
            torch.cuda.synchronize(self.device)
        with torch.cuda.device(self.device):
            self.side = torch.cuda.Stream(self.device, priority=MODEL_PRIORITY)
            self.pool = torch.cuda.graph_pool_handle()
        self.pools.add(tuple(self.pool))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The model's stream is the current one inside. The caller's own waits for it at the end."""
        callers = torch.cuda.current_stream(self.device)
        if callers == self.stream:
            yield
            return
        self.stream.wait_stream(callers)
        with torch.cuda.stream(self.stream):
            yield
        callers.wait_stream(self.stream)

    def microseconds(self, call: Callable[[], Any]) -> int:
        """The median of a few runs, by the device's clock."""
        taken = []
        with self.running():
            call()
            for _ in range(TIMED_RUNS):
                started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                started.record()
                call()
                ended.record()
                ended.synchronize()
                taken.append(started.elapsed_time(ended) * 1000)
        return int(statistics.median(taken) + 0.5)

    def memory(self) -> int:
        """The size of the pools that graphs were recorded into."""
        try:
            segments = torch.cuda.memory_snapshot()
            return sum(one["total_size"] for one in segments if tuple(one["segment_pool_id"]) in self.pools)
        except (KeyError, TypeError, RuntimeError):  # A torch that does not tell.
            return 0

    def aside(self) -> Capture:
        """With a stream of its own, and the same pool."""
        return CudaCapture(self.device, self.stream, self.pool)


MODE = (
    {"capture_error_mode": "thread_local"}
    if "capture_error_mode" in inspect.signature(torch.cuda.graph.__init__).parameters
    else {}
)
"""Other threads may use the device while one records; torch before 2.1 has no word for it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is about memory, which a smaller size may have enough of."""
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()
