"""The context a worker passes to its handler: one object, bound anew to every batch.

It is TorchServe's `Context` with the per-batch parts made lazy. Binding forgets everything that
belonged to the previous batch; attributes a handler invented stay, as they do on TorchServe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from jitney.torchserve.context import Context, RequestProcessor
from jitney.torchserve.outputs import encode_output
from jitney.worker.headers import Headers, read_headers, read_request_id
from jitney.worker.items import encode_meta, table_of
from jitney.worker.protocol import POSITION, Bytes
from jitney.worker.writer import FrameWriter

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


class WorkerContext(Context):
    """A context over the metas of the current batch."""

    _metas: list[bytes] | None = None
    _request_ids: dict[int, str] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.touched_requests: dict[int, RequestProcessor] = {}
        """Processors of the requests this batch's handler looked at; all other answers are plain."""
        self.frame_writer: FrameWriter | None = None
        """Where pieces of answers go; None outside a worker."""
        self.batch_id = 0
        self.batch_ids: list[int] | None = None
        """The batch of each request, where each has one of its own (continuous batching)."""
        self.streamed: set[int] = set()
        """Positions of the requests that got a piece of their answer already."""
        super().__init__(*args, **kwargs)

    def bind_batch(self, metas: list[bytes], batch_id: int = 0) -> None:
        """Makes `metas` the current batch; nothing of the one before survives."""
        self._metas = metas
        self._request_ids = None
        self.touched_requests = {}
        self.batch_id = batch_id
        self.batch_ids = None
        self.streamed = set()

    def adopt_batch(self, other: WorkerContext) -> None:
        """Makes the batch another context was bound to this one's."""
        self._metas, self._request_ids = other._metas, other._request_ids
        self.touched_requests, self.streamed = other.touched_requests, other.streamed
        self.batch_id = other.batch_id

    @property
    def metas(self) -> list[bytes]:
        """The metas of the current batch, for code that reads them directly."""
        return self._metas or []

    @property
    def request_ids(self) -> dict[int, str] | None:
        """Request ids by position in the batch; None before the first batch."""
        if self._request_ids is None and self._metas is not None:
            self._request_ids = dict(enumerate(map(read_request_id, self._metas)))
        return self._request_ids

    @request_ids.setter
    def request_ids(self, value: dict[int, str] | None) -> None:
        self._request_ids = value

    @property
    def request_processor(self) -> list[RequestProcessor] | None:
        """One RequestProcessor per request; None before the first batch."""
        if self._metas is None:
            return None
        return [self._request(idx) for idx in range(len(self._metas))]

    @request_processor.setter
    def request_processor(self, value: list[RequestProcessor] | None) -> None:
        self.touched_requests = dict(enumerate(value or ()))

    def _request(self, idx: int) -> RequestProcessor:
        processor = self.touched_requests.get(idx)
        if processor is None:
            metas = self._metas or ()
            idx = range(len(metas))[idx]
            processor = self.touched_requests.setdefault(idx, ItemProcessor(metas[idx]))
        return processor

    def send_intermediate(self, outputs: Sequence[Any], positions: Iterable[int]) -> None:
        """Sends one piece of each of these requests' answers to their clients, now."""
        if self.frame_writer is None:
            raise RuntimeError("only a worker can send intermediate responses")
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
