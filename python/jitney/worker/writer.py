"""Sends whole frames over the worker's socket, from any thread; and the items of REPLY and CHUNK frames as bytes.

Handlers may stream from threads of their own, and asynchronous ones answer out of order; the lock keeps frames whole.
What a frame contains is decided elsewhere: items are a table of lengths, then metas and bodies.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitney.torchserve.context import RequestProcessor
from jitney.values.tensor import RawTensor
from jitney.worker.protocol import (
    CHUNK,
    FIELD,
    HEADER,
    JOINED_BYTES_LIMIT,
    PARAM,
    POSITION,
    REPLY_META,
    Bytes,
    encode_control,
    send_frame,
)

if TYPE_CHECKING:
    import asyncio

LENGTHS = struct.Struct("<2I")
"""The table of a lone item."""
HEADS_KEPT = 256
"""Heads of tensors that are remembered."""


class FrameWriter:
    """Sends frames, one after another."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def send(self, kind: int, count: int, frame_id: int, parts: Sequence[Bytes], before: bytes = b"") -> None:
        """Sends a frame whose payload is `parts`, together with the frames before it."""
        with self._lock:
            send_frame(self._sock, kind, count, frame_id, parts, before)

    def send_joined(self, frames: bytes) -> None:
        """Sends whole frames."""
        with self._lock:
            self._sock.sendall(frames)

    def send_control(self, kind: int, value: dict[str, Any], frame_id: int = 0) -> None:
        """Sends a control frame."""
        self.send(kind, 0, frame_id, (encode_control(value),))

    def shut_down(self) -> None:
        """Ends the connection for good, also for a thread that still reads from it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def send_chunk(self, frame_id: int, count: int, parts: Sequence[Bytes]) -> None:
        """Sends pieces of answers that are not complete yet."""
        self.send(CHUNK, count, frame_id, parts)

    def send_piece(self, frame_id: int, meta: bytes, body: Bytes) -> None:
        """Sends a piece of the answer to the only request of a batch."""
        self.send_chunk(frame_id, 1, table_of([(POSITION.pack(0) + meta, body)]))


ANSWERED, ITEM_FAILED, IN_TENSORS, WITH_NUMBERS = 0, 1, 2, 3
FIELDS_MAX, FIELD_CHARS_MAX = 100, 512
"""So much is told of the fields that do not fit: clients choose their names, and how many there are."""


def assemble(metas: dict[int, bytes], bodies: list[Bytes]) -> list[Bytes]:
    """Table, metas and bodies in the order of the wire; `metas` holds only those that are not empty."""
    lengths = [0] * (2 * len(bodies))
    lengths[1::2] = map(len, bodies)
    parts = bodies
    if metas:
        parts = []
        for idx, body in enumerate(bodies):
            meta = metas.get(idx, b"")
            lengths[2 * idx] = len(meta)
            parts += meta, body
    return [struct.pack(f"<{len(lengths)}I", *lengths), *parts]


def assemble_all(metas: list[bytes], bodies: list[Bytes]) -> list[Bytes]:
    """The same for items that all may have a meta."""
    lengths = [0] * (2 * len(bodies))
    lengths[::2], lengths[1::2] = map(len, metas), map(len, bodies)
    parts: list[Bytes] = [b""] * len(lengths)
    parts[::2], parts[1::2] = metas, bodies
    return [struct.pack(f"<{len(lengths)}I", *lengths), *parts]


def assemble_parts(items: Sequence[tuple[bytes, Sequence[Bytes]]]) -> list[Bytes]:
    """The same for items whose bodies are in parts, which are not copied."""
    lengths: list[int] = []
    parts: list[Bytes] = []
    for meta, body in items:
        lengths += len(meta), sum(map(len, body))
        parts += meta, *body
    return [struct.pack(f"<{len(lengths)}I", *lengths), *parts]


def table_of(items: Sequence[tuple[bytes, Bytes]]) -> list[Bytes]:
    """Table, metas and bodies of items that all have a meta."""
    return assemble_all([meta for meta, _ in items], [body for _, body in items])


def encode_meta(processor: RequestProcessor) -> bytes:
    """The meta of an answered item; empty for status 200 without phrase and headers."""
    status = processor.get_response_status_code()
    phrase = (processor.get_response_status_phrase() or "").encode()
    headers = processor.get_response_headers()
    if status == 200 and not phrase and not headers:
        return b""
    return _pack(int(status), phrase, headers)


def encode_fields(
    status: int, phrase: str, headers: Mapping[str, str] | Sequence[tuple[str, str]], outcome: int = ANSWERED
) -> bytes:
    """The meta of an answered item from its parts."""
    return _pack(status, phrase.encode(), headers, outcome)


def encode_tensors(status: int, headers: Mapping[str, str], tensors: Sequence[tuple[str, RawTensor]]) -> bytes:
    """The meta of an item that is answered in tensors."""
    parts = [_pack(status, b"", headers, IN_TENSORS) if headers or status != 200 else PLAIN_TENSORS]
    parts.append(struct.pack("<H", len(tensors)))
    parts += [_tensor_head(name, one.datatype, one.shape, len(one.data)) for name, one in tensors]
    return b"".join(parts)


def encode_numbers(parts: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The end of the meta of a JSON answer whose numbers the server writes: how long texts and numbers are."""
    lengths = [len(one) for part in parts for one in part]
    return struct.pack(f"<I{len(lengths)}I", len(parts), *lengths)


@functools.lru_cache(HEADS_KEPT)
def _tensor_head(name: str, datatype: str, shape: tuple[int, ...], size: int) -> bytes:
    """What stands before a tensor; most answers of a model have the same."""
    raw, kind = name.encode(), struct.pack(f"<B{len(shape)}Q", len(shape), *shape) + datatype.encode()
    return PARAM.pack(len(raw), len(kind), size) + raw + kind


def encode_failed(cause: int, status: int, fields: Sequence[tuple[str, str]] = ()) -> bytes:
    """The meta of an item that failed alone, with the fields of its request that do not fit."""
    shown = [(_shown(name), _shown(why)) for name, why in fields[:FIELDS_MAX]]
    return _pack(status, b"", shown, ITEM_FAILED, cause)


def _shown(text: str) -> str:
    """Text that can be sent: JSON may hold halves of characters."""
    return text[:FIELD_CHARS_MAX].encode(errors="replace").decode()


def _pack(
    status: int,
    phrase: bytes,
    headers: Mapping[str, str] | Sequence[tuple[str, str]],
    outcome: int = ANSWERED,
    cause: int = 0,
) -> bytes:
    parts = [REPLY_META.pack(outcome, cause, status, len(phrase), len(headers)), phrase]
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        name_bytes, value_bytes = str(name).encode(), str(value).encode()
        parts += FIELD.pack(len(name_bytes), len(value_bytes)), name_bytes, value_bytes
    return b"".join(parts)


PLAIN_TENSORS = _pack(200, b"", {}, IN_TENSORS)
"""How the meta of most answers in tensors begins."""


class TurnWriter(FrameWriter):
    """Sends frames of the loop's own thread, a turn's frames together: a write for each piece of many streams would
    take longer than to make them. What other threads send is written at once.
    """

    def __init__(self, writer: FrameWriter) -> None:
        self._writer = writer
        self._unsent: list[Bytes] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the loop runs, in this thread."""
        self._loop = loop
        self._thread = threading.get_ident()

    def send(self, kind: int, count: int, frame_id: int, parts: Sequence[Bytes], before: bytes = b"") -> None:
        """Sends a frame at the end of this turn; a large one at once, behind those that wait."""
        if self._loop is None or threading.get_ident() != self._thread:
            self._writer.send(kind, count, frame_id, parts, before)
            return
        length = sum(map(len, parts))
        if length > JOINED_BYTES_LIMIT:
            self.flush()
            self._writer.send(kind, count, frame_id, parts, before)
            return
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent += (before, HEADER.pack(length, kind, 0, count, frame_id), *parts)

    def flush(self) -> None:
        """Sends what waits."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            self._writer.send_joined(b"".join(unsent))
