"""The calls to one server from one event loop: sends their frames and receives their answers.

Everything here runs on the loop's thread. Calls made in one turn of the loop are sent in one write,
and a read completes every call that it can. The first call opens the connection, and the next call
after it was lost opens it again; calls that were under way then fail, since the model may have run.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from jitney.call.errors import Overloaded
from jitney.handle import frames
from jitney.handle.frames import Timing
from jitney.handle.wire import MakeError, Wire
from jitney.wire.address import Address
from jitney.wire.calls import read_body

CALLS_MAX = 65_536
"""Calls under way; one more is rejected here."""
UNSENT_BYTES_MAX = 256 << 20


class ResultReceiver(Protocol):
    """What a caller holds while its call is under way: it receives the result."""

    number: int

    def answered(self, value: Any, timing: Timing) -> None:
        """The whole answer."""

    def piece(self, value: Any, size: int, timing: Timing | None) -> bool:
        """A piece of it; False if it cannot be kept and the call is over."""

    def ended(self) -> None:
        """The last piece was received."""

    def failed(self, error: BaseException) -> None:
        """There is no answer, or no more of it."""


class Connection:
    """All calls to a server from one event loop."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self._address = address
        self.loop = loop
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._calls: dict[int, ResultReceiver] = {}
        self._types: dict[int, str] = {}
        """Content types of the streams under way."""
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._scheduled = False
        self._numbers = 0

    def send(self, receiver: ResultReceiver, head: bytes, body: bytes) -> None:
        """Begins a call."""
        if len(self._calls) >= CALLS_MAX or self._unsent_bytes > UNSENT_BYTES_MAX:
            raise Overloaded(f"{len(self._calls)} calls are under way; wait for some of them", 429, "TooManyCalls")
        self._numbers = number = self._numbers + 1
        receiver.number = number
        self._calls[number] = receiver
        self._put(frames.call_frame(number, head, body))

    def cancel(self, receiver: ResultReceiver) -> None:
        """Cancels a call."""
        if self._calls.pop(receiver.number, None) is not None:
            self._types.pop(receiver.number, None)
            self._put(frames.cancel_frame(receiver.number))

    def close(self) -> None:
        """Ends the connection; calls under way fail."""
        if self._wire is not None:
            self._wire.close()

    def _put(self, frame: bytes) -> None:
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._wire is None and self._unsent:
            self._wire = Wire(self._address, self)
            self._opening = self.loop.create_task(self._wire.open(self.loop))
        elif self._wire is not None and self._wire.may_write and self._unsent:
            unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
            self._wire.write(b"".join(unsent))

    # -- events of the wire ---------------------------------------------------------------------

    def ready(self) -> None:
        """Sends what has waited."""
        self._flush()

    def lost(self, why: MakeError) -> None:
        """Fails all calls under way."""
        self._wire, calls, self._calls, self._types = None, self._calls, {}, {}
        self._unsent, self._unsent_bytes = [], 0
        for receiver in calls.values():
            receiver.failed(why())

    def frame_received(self, kind: int, number: int, payload: memoryview) -> None:
        """Handles one frame; the call may have been cancelled meanwhile."""
        receiver = self._calls.get(number)
        if receiver is None:
            return
        try:
            handle = _FRAME_HANDLERS[kind]
        except KeyError:
            raise ValueError(f"a frame of kind {kind}") from None
        try:
            handle(self, number, payload, receiver)
        except Exception as error:  # A body that cannot be read is that call's failure alone.
            self.cancel(receiver)
            receiver.failed(error)

    def _answer(self, number: int, payload: memoryview, receiver: ResultReceiver) -> None:
        value, timing, _ = frames.read_answer(payload)
        del self._calls[number]
        receiver.answered(value, timing)

    def _first(self, number: int, payload: memoryview, receiver: ResultReceiver) -> None:
        value, timing, self._types[number] = frames.read_answer(payload)
        if not receiver.piece(value, len(payload), timing):
            self.cancel(receiver)

    def _chunk(self, number: int, payload: memoryview, receiver: ResultReceiver) -> None:
        value = read_body(payload, self._types[number])
        if not receiver.piece(value, len(payload), None):
            self.cancel(receiver)

    def _end(self, number: int, payload: memoryview, receiver: ResultReceiver) -> None:
        self._forget(number)
        receiver.ended()

    def _error(self, number: int, payload: memoryview, receiver: ResultReceiver) -> None:
        self._forget(number)
        receiver.failed(frames.read_error(payload))

    def _forget(self, number: int) -> None:
        del self._calls[number]
        self._types.pop(number, None)


_FRAME_HANDLERS = {
    frames.ANSWER: Connection._answer,
    frames.FIRST: Connection._first,
    frames.CHUNK: Connection._chunk,
    frames.END: Connection._end,
    frames.ERROR: Connection._error,
}
