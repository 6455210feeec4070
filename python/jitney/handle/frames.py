"""The frames of a handle connection as the client writes and reads them: protocol/handles.md.

Pure functions over bytes. What an answer's body means is decided by its content type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jitney.call.errors import RemoteError, remote_error
from jitney.wire.calls import VALUE_TYPE, CallOptions, decode_failure, read_body
from jitney.wire.values import decode

CALL, CANCEL, ANSWER, FIRST, CHUNK, END, ERROR = range(1, 8)
HEADER = struct.Struct("<IBBHQ")
CALL_HEAD = struct.Struct("<IBBHHHH")
CLAIM_HEAD = struct.Struct("<QB")
HEADERS_LENGTH = struct.Struct("<H")
HEADER_HEAD = struct.Struct("<HI")
HAS_CLAIM, HAS_HEADERS = 1, 2
ANSWER_HEAD = struct.Struct("<IIIIHBBHH")
ERROR_HEAD = struct.Struct("<HHI")
FRAME_BYTES_MAX = 1 << 31
_VALUE = VALUE_TYPE.encode()

Payload = bytes | memoryview
Received = tuple[int, int, Payload]
"""Kind, call and payload of a frame."""

REASONS = ("full", "idle", "window", "deadline", "everyone", "drain", "retry")


class Timing(NamedTuple):
    """How long a call waited and was computed, and the batch that it was in."""

    queue_s: float
    compute_s: float
    batch_items: int
    batch_items_max: int
    position: int
    attempt: int
    reason: str


AnswerHead = tuple[int, ...]
"""The head of an answer as it came: what `Timing` has, the status and the length of the content type."""


class Timed:
    """What calls and streams know of their timing."""

    answer_head: AnswerHead | None = None

    @property
    def timing(self) -> Timing | None:
        """Known once the call is answered, or its first piece is there."""
        return None if self.answer_head is None else timing_of(self.answer_head)

    receipt = property(lambda self: self.timing, doc="The older name of `timing`.")


def call_head(model: str, version: str, endpoint: str, content_type: str, options: CallOptions) -> bytes:
    """The payload of a CALL up to its body."""
    names = [name.encode() for name in (model, version, endpoint, content_type)]
    if max(map(len, names)) > 0xFFFF:
        raise ValueError("a name is too long")
    more, tail = call_tail(options.tenant, options.cost, options.own_headers or ())
    millis, bulk = min(options.timeout_ms or 0, 0xFFFFFFFF), options.priority == "bulk"
    return CALL_HEAD.pack(millis, bulk, more, *map(len, names)) + b"".join(names) + tail


def call_tail(tenant: str | None, cost: int | None, own_headers: Sequence[tuple[str, str]]) -> tuple[int, bytes]:
    """The claim and the headers of a CALL, and the bits that say whether it has them."""
    more, tail, headers = 0, b"", b""
    if tenant or cost:
        name = (tenant or "").encode()
        more, tail = HAS_CLAIM, CLAIM_HEAD.pack(cost or 0, len(name)) + name
    for header, value in own_headers:
        headers += HEADER_HEAD.pack(len(header), len(value)) + header.encode() + value.encode()
    if not headers:
        return more, tail
    return more | HAS_HEADERS, tail + HEADERS_LENGTH.pack(len(headers)) + headers


def cancel_frame(number: int) -> bytes:
    """A CANCEL."""
    return HEADER.pack(0, CANCEL, 0, 0, number)


SMALL_BYTES = 4096
"""Payloads up to here are copied, which costs less than a view of them."""


class FrameBuffer:
    """Cuts a stream into frames, wherever its pieces end."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._need = HEADER.size

    def feed(self, data: bytes) -> Iterator[Received]:
        """Every frame that is complete now."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return
            data = bytes(self._rest)
            self._rest.clear()
        view, at, size = memoryview(data), 0, len(data)
        while size - at >= HEADER.size:
            length, kind, _, _, number = HEADER.unpack_from(data, at)
            if length > FRAME_BYTES_MAX:
                raise ValueError("a frame is too long")
            end = at + HEADER.size + length
            if end > size:
                self._need = end - at
                break
            yield kind, number, (data if length <= SMALL_BYTES else view)[at + HEADER.size : end]
            at = end
        else:
            self._need = HEADER.size
        if at < size:
            self._rest += view[at:]


def read_answer(payload: Payload) -> tuple[Any, AnswerHead, str]:
    """An answer or the first piece of it, its head and its content type; raises if the model's status is an error."""
    head = ANSWER_HEAD.unpack_from(payload)
    body_at = 24 + head[8]
    if head[7] >= 400:
        raise RemoteError(str(payload[body_at:], "utf-8", "replace"), head[7])
    if payload[24:body_at] == _VALUE:
        return decode(payload[body_at:]), head, VALUE_TYPE
    content_type = str(payload[24:body_at], "utf-8")
    return read_body(payload[body_at:], content_type), head, content_type


def timing_of(head: AnswerHead) -> Timing:
    """What the head of an answer says about its way."""
    queue, compute, items, most, position, attempt, reason = head[:7]
    name = REASONS[reason] if reason < len(REASONS) else ""
    return Timing(queue / 1e6, compute / 1e6, items, most, position, attempt, name)


def read_error(payload: Payload) -> BaseException:
    """The exception of an ERROR."""
    status, kind_len, retry_ms = ERROR_HEAD.unpack_from(payload)
    kind = str(payload[8 : 8 + kind_len], "utf-8")
    message = str(payload[8 + kind_len :], "utf-8", "replace")
    return decode_failure(message, status) or remote_error(status, kind, message, retry_ms / 1000 or None)
