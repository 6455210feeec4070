"""Whose clients have left, of the batches that a worker holds. The server says so in CANCEL frames.

Nobody is interrupted: who makes a stream asks before it sends the next piece. A worker that takes one batch at a time
reads nothing while its model runs, so the question itself looks for frames then (`FramesInTurn`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from jitney.torchserve.threads import THREADS
from jitney.worker.protocol import CANCEL, SHARE, Frame, FrameReader, decode_control, workers_of

ALL = None
"""In the place of the positions of a batch: all of its clients have left."""


def _nothing_to_read() -> None:
    """Another thread, or a loop, reads."""


@dataclass
class LeftClients:
    """What the server has said, by batch."""

    look: Callable[[], None] = _nothing_to_read
    """Takes in what the server has said, where no one else does that while the model runs."""
    _left: dict[int, set[int] | None] = field(default_factory=dict)

    def note(self, frame: Frame) -> bool:
        """Takes in a CANCEL; whether all clients of its batch have left."""
        positions = decode_control(frame.payload).get("positions")
        known = self._left.get(frame.id, set())
        self._left[frame.id] = ALL if not positions or known is ALL else known.union(positions)
        return self._left[frame.id] is ALL

    def has_left(self, batch_id: int, position: int) -> bool:
        """Whether the client of the request at this position has left."""
        positions = self._left.get(batch_id, ())
        return positions is ALL or position in positions

    def forget(self, batch_id: int) -> None:
        """The batch is over."""
        self._left.pop(batch_id, None)

    def forget_until(self, batch_id: int) -> None:
        """The batch is over, and with it all that came before it."""
        for known in tuple(self._left):
            if known <= batch_id:
                self.forget(known)


class FramesInTurn:
    """Frames for a worker that takes one batch at a time. A CANCEL is noted whenever it is read; other frames that
    were found by a look wait for their turn. A SHARE is done between two batches."""

    def __init__(self, reader: FrameReader, clients: LeftClients) -> None:
        self._reader = reader
        self._clients = clients
        self._ahead: deque[Frame | None] = deque()
        self._reading = threading.Lock()
        """Held by the thread that reads: a handler may send from threads of its own."""
        if reader.can_poll:
            clients.look = self._look

    def read(self) -> Frame | None:
        """The next frame that is neither CANCEL nor SHARE; None at the end of the stream."""
        with self._reading:
            while True:
                frame = self._ahead.popleft() if self._ahead else self._reader.read()
                if frame is None or frame.kind not in (CANCEL, SHARE):
                    return frame
                if frame.kind == CANCEL:
                    self._clients.note(frame)
                else:
                    THREADS.take(workers_of(frame))

    def has_more(self) -> bool:
        """Whether something has come that was not read yet."""
        return bool(self._ahead) or self._reader.has_more

    def _look(self) -> None:
        if not self._reading.acquire(blocking=False):
            return  # Who reads at this moment takes it in.
        try:
            for frame in self._reader.poll():
                if frame is not None and frame.kind == CANCEL:
                    self._clients.note(frame)
                else:
                    self._ahead.append(frame)
        finally:
            self._reading.release()
