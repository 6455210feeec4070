"""The context a worker passes to its handler: one object, bound anew to every batch.

It is TorchServe's `Context` with the per-batch parts made lazy. Binding forgets everything that
belonged to the previous batch; attributes a handler invented stay, as they do on TorchServe. Where the
steps of several batches overlap, the same object shows each thread the batch that this thread works on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jitney.torchserve.bodies import encode_output
from jitney.torchserve.context import Context, RequestProcessor
from jitney.torchserve.failures import ClientsLeft
from jitney.worker.batch import Headers, read_headers, read_request_id
from jitney.worker.left_clients import LeftClients
from jitney.worker.protocol import POSITION, Bytes
from jitney.worker.writer import FrameWriter, encode_meta, table_of

STREAM_NEXT = "ts_stream_next"
"""The header by which TorchServe's clients recognise a stream."""


class ItemProcessor(RequestProcessor):
    """A RequestProcessor that parses its headers when the first one is read."""

    def __init__(self, meta: bytes) -> None:
        self._meta = meta
        self._reset_response()

    @cached_property
    def _request_header(self) -> Headers:  # type: ignore[override]  # An attribute of the base, made lazy here.
        return read_headers(self._meta)


@dataclass(slots=True)
class BoundBatch:
    """All that belongs to one batch and to no other."""

    metas: list[bytes] | None = None
    id: int = 0
    request_ids: dict[int, str] | None = None
    touched_requests: dict[int, RequestProcessor] = field(default_factory=dict)
    streamed: set[int] = field(default_factory=set)
    ids: list[int] | None = None


class _BatchOfThread(threading.local):
    batch: BoundBatch | None = None


class WorkerContext(Context):
    """A context over the metas of the current batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.frame_writer: FrameWriter | None = None
        """Where pieces of answers go; None outside a worker."""
        self.batch_sizes: list[int] = []
        """The batch sizes at which the operator lets the model run; none: the handler chooses."""
        self.batch_lengths: list[int] = []
        """The lengths to which items are padded; none: the handler chooses."""
        self.compile_cache: str | None = None
        """A directory for what compiling the model makes, the same at the next start; it may not exist yet."""
        self.debug_errors = False
        """Whether clients may see tracebacks."""
        self.clients = LeftClients()
        self._bound = BoundBatch()
        self._threads: _BatchOfThread | None = None
        super().__init__(*args, **kwargs)

    def for_batch(self, metas: list[bytes], batch_id: int) -> WorkerContext:
        """The same for a batch that runs beside others."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._bound = BoundBatch(metas, batch_id)
        return twin

    def bind_batch(self, metas: list[bytes], batch_id: int = 0) -> None:
        """Makes `metas` the current batch; nothing of the one before survives."""
        self._bound = BoundBatch(metas, batch_id)

    def show_each_thread_its_own(self) -> None:
        """From now on `show` is for the calling thread only."""
        self._threads = _BatchOfThread()

    def show(self, batch: BoundBatch, to_all: bool = False) -> None:
        """Makes a batch this thread's current one, and that of threads for which nobody does this."""
        if self._threads is not None:
            self._threads.batch = batch
        if to_all or self._threads is None:
            self._bound = batch

    @property
    def _batch(self) -> BoundBatch:
        threads = self._threads
        return self._bound if threads is None else threads.batch or self._bound

    @property
    def batch_id(self) -> int:
        """The id of the current batch's frame."""
        return self._batch.id

    @property
    def batch_ids(self) -> list[int] | None:
        """The batch of each request, where each has one of its own (continuous batching)."""
        return self._batch.ids

    @batch_ids.setter
    def batch_ids(self, value: list[int]) -> None:
        self._batch.ids = value

    @property
    def touched_requests(self) -> dict[int, RequestProcessor]:
        """Processors of the requests this batch's handler looked at; all other answers are plain."""
        return self._batch.touched_requests

    @property
    def streamed(self) -> set[int]:
        """Positions of the requests that got a piece of their answer already."""
        return self._batch.streamed

    @property
    def metas(self) -> list[bytes]:
        """The metas of the current batch, for code that reads them directly."""
        return self._batch.metas or []

    @property
    def request_ids(self) -> dict[int, str] | None:
        """Request ids by position in the batch; None before the first batch."""
        batch = self._batch
        if batch.request_ids is None and batch.metas is not None:
            batch.request_ids = dict(enumerate(map(read_request_id, batch.metas)))
        return batch.request_ids

    @request_ids.setter
    def request_ids(self, value: dict[int, str] | None) -> None:
        self._batch.request_ids = value

    @property
    def request_processor(self) -> list[RequestProcessor] | None:
        """One RequestProcessor per request; None before the first batch."""
        metas = self._batch.metas
        return None if metas is None else [self._request(idx) for idx in range(len(metas))]

    @request_processor.setter
    def request_processor(self, value: list[RequestProcessor] | None) -> None:
        self._batch.touched_requests = dict(enumerate(value or ()))

    def _request(self, idx: int) -> RequestProcessor:
        batch = self._batch
        processor = batch.touched_requests.get(idx)
        if processor is None:
            metas = batch.metas or ()
            idx = range(len(metas))[idx]
            processor = batch.touched_requests.setdefault(idx, ItemProcessor(metas[idx]))
        return processor

    def cancelled(self, idx: int | None = None) -> bool:
        """Whether the client of this request has left; without an index, whether all clients of the batch have."""
        self.clients.look()
        return self._all_have_left() if idx is None else self._has_left(idx)

    def _has_left(self, idx: int) -> bool:
        ids = self.batch_ids
        return self.clients.has_left(self.batch_id, idx) if ids is None else self.clients.has_left(ids[idx], 0)

    def _all_have_left(self) -> bool:
        return bool(self.metas) and all(map(self._has_left, range(len(self.metas))))

    def send_intermediate(self, outputs: Sequence[Any], positions: Iterable[int]) -> None:
        """Sends one piece of each of these requests' answers to their clients, now. Those who have left get none;
        raises `ClientsLeft` when the whole batch has nobody left."""
        if self.frame_writer is None:
            raise RuntimeError("only a worker can send intermediate responses")
        self.clients.look()
        positions = [idx for idx in positions if not self._has_left(idx)]
        if not positions and self._all_have_left():
            raise ClientsLeft("all clients of this batch have left; there is nobody to send to")
        pieces = [(idx, *self._piece(idx, outputs[idx])) for idx in positions]
        if self.batch_ids is not None:
            for idx, meta, body in pieces:
                self.frame_writer.send_piece(self.batch_ids[idx], meta, body)
            return
        placed = [(POSITION.pack(idx) + meta, body) for idx, meta, body in pieces]
        self.frame_writer.send_chunk(self.batch_id, len(placed), table_of(placed))

    def _piece(self, idx: int, output: Any) -> tuple[bytes, Bytes]:
        body = encode_output(output)
        head = b""
        if idx not in self.streamed:  # Status and headers go out with the first piece and cannot change later.
            request = self._request(idx)
            request.add_response_property(STREAM_NEXT, "true")
            head = encode_meta(request)
            self.streamed.add(idx)
        return head, body

    def end_streams(self) -> None:
        """Marks the answers that were streamed as complete, as TorchServe does."""
        for idx in self.streamed:
            self._request(idx).add_response_property(STREAM_NEXT, "false")
