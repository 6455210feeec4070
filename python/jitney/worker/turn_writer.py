"""Sends the answers of one turn of an event loop in one write.

Only for answers that the loop makes: pieces of streams, which other threads may send too, are written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jitney.worker.protocol import HEADER, JOINED_BYTES_LIMIT, Bytes
from jitney.worker.writer import FrameWriter


class TurnWriter(FrameWriter):
    """Sends frames of the loop's own thread, a turn's frames together."""

    def __init__(self, writer: FrameWriter) -> None:
        self._writer = writer
        self._unsent: list[Bytes] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the loop runs."""
        self._loop = loop

    def send(self, kind: int, count: int, frame_id: int, parts: Sequence[Bytes], before: bytes = b"") -> None:
        """Sends a frame at the end of this turn; a large one at once, behind those that wait."""
        length = sum(map(len, parts))
        if length > JOINED_BYTES_LIMIT or self._loop is None:
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
