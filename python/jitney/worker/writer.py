"""Sends whole frames over the worker's socket, from any thread.

Handlers may stream from threads of their own, and asynchronous ones answer out of order; the
lock keeps frames whole. `reply` decides what a frame contains.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from typing import Any

from jitney.worker.items import table_of
from jitney.worker.protocol import CHUNK, POSITION, Bytes, encode_control, send_frame


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
