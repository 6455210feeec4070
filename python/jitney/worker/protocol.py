"""Frames: the bytes between server and worker, as protocol/spec.md describes them.

This file knows headers, kinds and how to read exactly one frame; what a batch or a reply
contains is the business of `batch`, `headers` and `reply`. The shared vectors in
protocol/vectors.json pin it down for Rust and Python alike.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jitney.worker.buffers import BatchBuffers, BodyBuffers

PROTOCOL_VERSION = 3

HELLO, LOAD, LOADED, LOAD_FAILED, BATCH, REPLY, FAILED, CHUNK, STOP, TIMES, CANCEL, PROGRESS, SHARE = range(1, 14)
CONTROL_KINDS = frozenset((HELLO, LOAD, LOADED, LOAD_FAILED, FAILED, STOP, TIMES, CANCEL, PROGRESS, SHARE))

HEADER = struct.Struct("<IBBHQ")  # length, kind, flags, count, id
ITEM_META = struct.Struct("<BBHI")  # id_len, param_count, form, headers_len
CALL_FACTS = struct.Struct("<IHBB")  # deadline_ms, batch_size, origin, priority; behind ITEM_META
ITEM_HEAD_SIZE = ITEM_META.size + CALL_FACTS.size
NO_DEADLINE = 0xFFFFFFFF
PARAM = struct.Struct("<HHI")  # name_len, content_type_len, value_len
FIELD = struct.Struct("<HI")  # name_len, value_len of a request or response header
POSITION = struct.Struct("<H")  # place in the batch, in front of a CHUNK item's meta
REPLY_META = struct.Struct("<BBHHH")  # outcome, cause, status, phrase_len, header_count

FRAME_BYTES_LIMIT = 1 << 30
LARGE_FRAME_BYTES = 1 << 20
"""Frames above this get a buffer of their own instead of growing the reader's."""
LARGE_ITEM_BYTES = 16 << 10
"""Batches whose items are larger than this on average are received into one buffer for each body."""
JOINED_BYTES_LIMIT = 128 << 10
"""Below this one joined `sendall` is cheaper than a gathered write."""
GATHER_PARTS_LIMIT = 1000
"""`sendmsg` takes at most IOV_MAX (1024 on Linux) parts."""

Bytes = bytes | bytearray | memoryview


class ProtocolError(Exception):
    """The peer broke the protocol; the only cure is to close the connection."""


class UnknownKind(ProtocolError):
    """The kind byte names no frame of this protocol version."""


class UnknownFlags(ProtocolError):
    """A flag bit is set that this version does not define."""


class TooLarge(ProtocolError):
    """The announced length is over the limit."""


class Truncated(ProtocolError):
    """The stream ended inside a frame."""


class Malformed(ProtocolError):
    """Lengths, counts or values inside the payload do not fit together."""


class ReceivedItems(NamedTuple):
    """The payload of a batch with large bodies. Each is the handler's to keep: in a buffer of its own, or, for handlers
    that take them, a view of the memory that the whole batch was received into."""

    table: bytes
    metas: list[bytes]
    bodies: Sequence[bytearray | memoryview]


class Frame(NamedTuple):
    """One frame; `payload` is the caller's to keep (`bytes`, or a view of a private buffer)."""

    kind: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody calls
    id: int
    payload: bytes | memoryview | ReceivedItems

    def parts(self) -> list[Bytes]:
        """The payload as it is sent."""
        if not isinstance(self.payload, ReceivedItems):
            return [self.payload]
        table, metas, bodies = self.payload
        parts: list[Bytes] = [table]
        for item in zip(metas, bodies):
            parts += item
        return parts


def parse_header(buffer: Bytes, offset: int, limit: int = FRAME_BYTES_LIMIT) -> tuple[int, int, int, int]:
    """Returns (length, kind, count, id) of a valid header."""
    length, kind, flags, count, frame_id = HEADER.unpack_from(buffer, offset)
    if not HELLO <= kind <= SHARE:
        raise UnknownKind(f"unknown frame kind {kind}")
    if flags:
        raise UnknownFlags(f"unknown frame flags {flags:#04x}")
    if length > limit:
        raise TooLarge(f"frame of {length} bytes is over the limit of {limit}")
    if count and kind in CONTROL_KINDS:
        raise Malformed(f"control frame of kind {kind} with count {count}")
    return length, kind, count, frame_id


class FrameReader:
    """Reads whole frames from a stream socket with as few system calls as the data allows.

    Each `recv_into` takes whatever has arrived, so a small frame (and a pipelined next one)
    costs one call. Bytes past the current frame wait in the buffer.
    """

    def __init__(self, sock: socket.socket, limit: int = FRAME_BYTES_LIMIT) -> None:
        self._sock = sock
        self._limit = limit
        self._buffer = bytearray(64 << 10)
        self._view = memoryview(self._buffer)
        self._bodies = BodyBuffers()
        self._batches: BatchBuffers | None = None
        self._start = 0  # first unread byte; always <= _end
        self._end = 0  # one past the last received byte
        self.frame_began = 0.0
        """When the first bytes of the last frame were there."""

    def fileno(self) -> int:
        """The socket's, to wait for more than this one."""
        return self._sock.fileno()

    @property
    def buffered(self) -> bool:
        """Whether something was received that was not read yet."""
        return self._start < self._end

    @property
    def has_more(self) -> bool:
        """Whether something has come that was not read yet."""
        if self.buffered:
            return True
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    @property
    def can_poll(self) -> bool:
        """Whether `poll` works: a socket with a layer of its own, as TLS, may hold bytes that nobody can wait for."""
        return type(self._sock) is socket.socket

    def poll(self) -> Iterator[Frame | None]:
        """The frames that have arrived, without waiting for more; None at the end of the stream. Of a large frame of
        which a part is there the rest is waited for."""
        if self._end == len(self._buffer):
            self._make_room(self._end - self._start + 1)
        try:
            received = self._sock.recv_into(self._view[self._end :], 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            received = -1
        if received == 0:
            if self._start != self._end:
                raise Truncated("stream ended inside a frame")
            yield None
            return
        self._end += max(received, 0)
        while self._end - self._start >= HEADER.size:
            length, kind, count, frame_id = parse_header(self._buffer, self._start, self._limit)
            if length > LARGE_FRAME_BYTES or (kind == BATCH and length > LARGE_ITEM_BYTES * count):
                yield self.read()
                continue
            first = self._start + HEADER.size
            if self._end < first + length:
                self._make_room(HEADER.size + length)
                return
            self._start = first + length
            yield Frame(kind, count, frame_id, bytes(self._view[first : self._start]))

    def give_views(self) -> None:
        """From now on large bodies of a batch are views of one buffer, which costs less than a buffer for each."""
        self._batches = BatchBuffers()

    def read(self) -> Frame | None:
        """Returns the next frame, or None when the peer closed between two frames."""
        if not self._fill(HEADER.size):
            return None
        self.frame_began = time.perf_counter()
        length, kind, count, frame_id = parse_header(self._buffer, self._start, self._limit)
        if kind == BATCH and length > LARGE_ITEM_BYTES * count:
            self._start += HEADER.size
            return Frame(kind, count, frame_id, self._read_items(length, count))
        if length > LARGE_FRAME_BYTES:
            self._start += HEADER.size
            return Frame(kind, count, frame_id, self._read_large(length))
        self._fill(HEADER.size + length)
        first = self._start + HEADER.size
        self._start = first + length
        return Frame(kind, count, frame_id, bytes(self._view[first : self._start]))

    def _fill(self, wanted: int) -> bool:
        """Waits until `wanted` unread bytes are buffered; False on a clean end of stream."""
        if self._end - self._start >= wanted:
            return True
        self._make_room(wanted)
        while self._end - self._start < wanted:
            received = self._sock.recv_into(self._view[self._end :])
            if not received:
                if self._start == self._end:
                    return False
                raise Truncated("stream ended inside a frame")
            self._end += received
        return True

    def _make_room(self, wanted: int) -> None:
        """Moves the unread bytes to the front, into a larger buffer if this one is too small."""
        unread = self._end - self._start
        target = self._buffer
        if wanted > len(self._buffer):
            target = bytearray(1 << (wanted - 1).bit_length())
        if self._start or target is not self._buffer:
            target[:unread] = self._buffer[self._start : self._end]
            self._start, self._end = 0, unread
        if target is not self._buffer:
            self._buffer, self._view = target, memoryview(target)

    def _read_large(self, length: int) -> memoryview:
        payload = bytearray(length)
        self._read_into([payload])
        return memoryview(payload)

    def _read_items(self, length: int, count: int) -> ReceivedItems:
        """A batch, from the socket straight to where the handler finds its bodies."""
        size = 8 * count
        if size > length:
            raise Malformed("the table reaches past the payload")
        self._fill(size)
        table = bytes(self._view[self._start : self._start + size])
        self._start += size
        lengths = struct.unpack(f"<{2 * count}I", table)
        if size + sum(lengths) != length:
            raise Malformed("the items do not add up to the payload")
        if self._batches is not None:
            return self._read_views(table, lengths, self._batches.take(length - size))
        buffers = list(map(self._bodies.take, lengths))
        self._read_into(buffers)
        return ReceivedItems(table, list(map(bytes, buffers[::2])), buffers[1::2])

    def _read_views(self, table: bytes, lengths: tuple[int, ...], batch: memoryview) -> ReceivedItems:
        """All items in one buffer."""
        self._read_into([batch])
        ends = list(itertools.accumulate(lengths))
        starts = [0, *ends]
        metas = [bytes(batch[start:end]) for start, end in zip(starts[::2], ends[::2])]
        return ReceivedItems(table, metas, [batch[start:end] for start, end in zip(starts[1::2], ends[1::2])])

    def _read_into(self, buffers: Sequence[bytearray | memoryview]) -> None:
        """Fills all buffers, one after another."""
        views = [memoryview(buffer) for buffer in buffers if buffer]
        first = 0
        while first < len(views):
            received = self._take_buffered(views[first]) or self._receive(views[first : first + GATHER_PARTS_LIMIT])
            first = _advance(views, first, received)

    def _take_buffered(self, target: memoryview) -> int:
        size = min(self._end - self._start, len(target))
        target[:size] = self._view[self._start : self._start + size]
        self._start += size
        return size

    def _receive(self, targets: Sequence[memoryview]) -> int:
        received = self._sock.recvmsg_into(targets, 0, socket.MSG_WAITALL)[0]
        if not received:
            raise Truncated("stream ended inside a frame")
        return received


def _advance(views: list[memoryview], first: int, done: int) -> int:
    """Cuts off what is done of the views from `first` on; returns the first that is not."""
    while first < len(views) and done >= len(views[first]):
        done -= len(views[first])
        first += 1
    if done:
        views[first] = views[first][done:]
    return first


def send_frame(
    sock: socket.socket, kind: int, count: int, frame_id: int, parts: Sequence[Bytes], before: bytes = b""
) -> None:
    """Sends one frame whose payload is `parts`, one after another; returns when all is handed over.

    `before` are whole frames that go out in the same write.
    """
    length = sum(map(len, parts))
    header = before + HEADER.pack(length, kind, 0, count, frame_id)
    if length <= JOINED_BYTES_LIMIT:
        sock.sendall(b"".join((header, *parts)))
    else:
        _send_gathered(sock, [header, *parts])


def _send_gathered(sock: socket.socket, parts: Sequence[Bytes]) -> None:
    waiting = [memoryview(part) for part in parts if len(part)]
    first = 0
    while first < len(waiting):
        sent = sock.sendmsg(waiting[first : first + GATHER_PARTS_LIMIT])
        first = _advance(waiting, first, sent)


def encode_control(value: dict[str, Any]) -> bytes:
    """The payload of a control frame; an empty object is an empty payload."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() if value else b""


def calls_greeting(token: str) -> bytes:
    """The first frame of a connection by which a worker calls models."""
    payload = encode_control({"protocol": PROTOCOL_VERSION, "token": token, "role": "calls"})
    return HEADER.pack(len(payload), HELLO, 0, 0, 0) + payload


def decode_control(payload: Bytes | ReceivedItems) -> dict[str, Any]:
    """The JSON object of a control frame."""
    if isinstance(payload, ReceivedItems):
        raise Malformed("a batch is no control frame")
    if not len(payload):
        return {}
    try:
        value = json.loads(bytes(payload).decode("utf-8"))
    except ValueError as error:
        raise Malformed(f"control payload is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed("control payload is not a JSON object")
    return value


def workers_of(frame: Frame) -> int:
    """How many workers serve, as a SHARE says."""
    workers = decode_control(frame.payload).get("workers")
    return workers if isinstance(workers, int) else 0
