"""Answers in pieces: an iterator for threads, an asynchronous one for event loops.

Pieces wait for their reader within bounds; a reader that falls further behind loses its own stream
only, as on the server. `cancel` ends an answer early.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections import deque
from collections.abc import Callable
from typing import Any

from jitney.call.errors import Overloaded
from jitney.handle.connections import Connection
from jitney.handle.frames import Timed, Timing
from jitney.wire.calls import NO_PIECES

PIECES_MAX = 4096
BYTES_MAX = 64 << 20


def _outpaced() -> Overloaded:
    return Overloaded("the stream was read too slowly", 503, "Outpaced")


class _Receiver(Timed):
    """What both kinds of streams do with the frames of their call."""

    number = 0
    _over = False

    @property
    def is_over(self) -> bool:
        """Whether no piece is to come."""
        return self._over

    def piece(self, value: Any, size: int, timing: Timing | None) -> bool:
        """One more; False if it cannot be kept and the call is over."""
        raise NotImplementedError

    def _finish(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def answered(self, value: Any, timing: Timing) -> None:
        """A model that does not stream gives one piece; an empty stream gives none."""
        if value is not NO_PIECES:
            self.piece(value, 0, timing)
        self._finish(None)

    def ended(self) -> None:
        """The last piece was received."""
        self._finish(None)

    def failed(self, error: BaseException) -> None:
        """Ends the stream with an error, after the pieces that were received."""
        self._finish(error)


class AsyncStream(_Receiver):
    """The pieces of an answer, for `async for`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pieces: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._over = False
        self._error: BaseException | None = None
        self._reader: asyncio.Future[None] | None = None

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Any:
        while not self._pieces:
            if self._over:
                error, self._error = self._error, None
                raise error or StopAsyncIteration
            self._reader = self._connection.loop.create_future()
            await self._reader
        value, size = self._pieces.popleft()
        self._bytes -= size
        return value

    def cancel(self) -> None:
        """Cancels the rest."""
        if not self._over:
            self._connection.cancel(self)
            self._finish(None)

    async def aclose(self) -> None:
        """The same, for `contextlib.aclosing`."""
        self.cancel()

    def piece(self, value: Any, size: int, timing: Timing | None) -> bool:
        """One more."""
        if len(self._pieces) >= PIECES_MAX or (self._pieces and self._bytes + size > BYTES_MAX):
            self._finish(_outpaced())
            return False
        self.timing = timing or self.timing
        self._pieces.append((value, size))
        self._bytes += size
        self._wake()
        return True

    def _finish(self, error: BaseException | None) -> None:
        self._over, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Stream(_Receiver):
    """The pieces of an answer, for `for`; for `async for` too, in a loop that runs in the same thread."""

    def __init__(self, cancel: Callable[[Stream], None]) -> None:
        self._on_cancel = cancel
        self._pieces: queue.Queue[tuple[str, Any]] = queue.Queue()
        """Pieces and the end of the stream; bounded by `piece`, since a loop must never wait."""
        self._over = False
        self._reader: asyncio.Future[None] | None = None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        kind, value = self._pieces.get()
        if kind == "piece":
            return value
        self._over = True
        raise value or StopIteration

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        while not self._over:
            self._reader = asyncio.get_running_loop().create_future()  # Before the look: what comes after it wakes.
            try:
                kind, value = self._pieces.get_nowait()
            except queue.Empty:
                await self._reader
                continue
            if kind == "piece":
                return value
            self._over = True
            raise value or StopAsyncIteration
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Cancels the rest."""
        if not self._over:
            self._over = True
            self._on_cancel(self)

    close = cancel

    def piece(self, value: Any, size: int, timing: Timing | None) -> bool:
        """One more."""
        if self._pieces.qsize() >= PIECES_MAX:
            self._finish(_outpaced())
            return False
        self.timing = timing or self.timing
        self._put("piece", value)
        return True

    def _finish(self, error: BaseException | None) -> None:
        self._put("end", error)

    def _put(self, kind: str, value: Any) -> None:
        self._pieces.put((kind, value))
        reader = self._reader
        if reader is not None:
            with contextlib.suppress(RuntimeError):  # The reader's loop has ended.
                reader.get_loop().call_soon_threadsafe(_wake, reader)


def _wake(reader: asyncio.Future[None]) -> None:
    if not reader.done():
        reader.set_result(None)
