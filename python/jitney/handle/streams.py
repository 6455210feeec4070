"""What a caller holds while its call is under way: a future of its own kind of program, or an answer in pieces.

Inside an event loop the future is an `asyncio.Future`, elsewhere a `concurrent.futures.Future` that can be awaited
too, so everything that takes futures takes these. The future of a model that streams is the list of its pieces; a
stream gives them one by one, an iterator for threads, an asynchronous one for event loops.

Pieces wait for their reader within bounds; a reader that falls further behind loses its own stream
only, as on the server. `cancel` ends an answer early.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import queue
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from jitney.call.errors import Overloaded
from jitney.definition.decorators import R
from jitney.handle.connections import Connection
from jitney.handle.frames import AnswerHead, Timed
from jitney.wire.calls import NO_PIECES


class Pieces(Timed):
    """What both kinds keep of an answer under way."""

    number = 0
    _pieces: list[Any] | None = None

    def piece(self, value: Any, size: int, head: AnswerHead | None) -> bool:
        """A piece of it."""
        if head is not None:
            self.answer_head, self._pieces = head, []
        if self._pieces is not None:
            self._pieces.append(value)
        return True


class AsyncCall(Pieces, asyncio.Future[R]):
    """A call made inside an event loop: await it. Cancelling removes it from the model's queue."""

    __slots__ = ("_awaiting", "_connection", "answer_head", "number")

    def __init__(self, connection: Connection) -> None:
        asyncio.Future.__init__(self, loop=connection.loop)
        self._connection = connection
        self.answer_head: AnswerHead | None = None
        self._awaiting: tuple[Callable[[Any], object], contextvars.Context] | None = None
        """How the task that awaits this call is woken, and the context that it runs in."""

    def add_done_callback(self, fn: Callable[[Any], object], *, context: contextvars.Context | None = None) -> None:
        """As of every future. A task that awaits the call goes on at once when the answer is read: a turn of the loop
        for each answer would cost more than all that is done with it."""
        task = getattr(fn, "__self__", None)
        if context is not None and isinstance(task, asyncio.Task) and self._awaiting is None and not self.done():
            self._awaiting = fn, context
        else:
            super().add_done_callback(fn, context=context)

    def result(self, timeout: float | None = None) -> R:
        """The answer of a finished call. A loop cannot wait inside a function, so await it instead."""
        if not self.done():
            raise RuntimeError(
                "this call was made inside an event loop, which cannot wait here: write `await call` instead of "
                "call.result(); a function that is not async can be run by `await asyncio.to_thread(function)`"
            )
        return asyncio.Future.result(self)

    def cancel(self, msg: Any = None) -> bool:
        """Cancels the call."""
        if not self.done():
            self._connection.cancel(self)
        cancelled = super().cancel(msg)
        self._wake_later()
        return cancelled

    def answered(self, value: Any, head: AnswerHead) -> None:
        """The whole answer."""
        if self.done():
            return
        self.answer_head = head
        self.set_result([] if value is NO_PIECES else value)
        awaiting = self._awaiting
        if awaiting is not None:
            self._awaiting = None
            # The task then takes the result of this call; to be woken by a plain future costs it less.
            awaiting[1].run(awaiting[0], self._connection.woken)

    def ended(self) -> None:
        """The last piece was received."""
        if not self.done():
            pieces: Any = self._pieces or []
            self.set_result(pieces)
            self._wake_later()

    def failed(self, error: BaseException) -> None:
        """There is no answer."""
        if not self.done():
            self.set_exception(error)
            self._log_traceback = False  # Whoever gave the call up does not want to read about it.
            self._wake_later()

    def _wake_later(self) -> None:
        """Wakes the task that awaits this call where another one may be running."""
        if self._awaiting is not None:
            (wake, context), self._awaiting = self._awaiting, None
            self._loop.call_soon(wake, self, context=context)


class Call(Pieces, concurrent.futures.Future[R]):
    """A call made outside of event loops: `result(timeout)` waits for it, from any thread."""

    def __init__(self, cancel: Callable[[Any], None]) -> None:
        super().__init__()
        self._on_cancel = cancel

    def __repr__(self) -> str:
        if not self.done():
            return "<jitney.Call: under way; .result() waits for it>"
        if self.cancelled():
            return "<jitney.Call: cancelled>"
        error = self.exception()
        return f"<jitney.Call: {self.result()!r}>" if error is None else f"<jitney.Call: failed with {error!r}>"

    def __await__(self) -> Generator[Any, None, R]:
        return asyncio.wrap_future(self).__await__()

    def cancel(self) -> bool:
        """Cancels the call and removes it from the model's queue. False if it is over already."""
        cancelled = super().cancel()
        if cancelled:
            self._on_cancel(self)
        return cancelled

    def answered(self, value: Any, head: AnswerHead) -> None:
        """The whole answer."""
        self.answer_head = head
        self._finish(self.set_result, [] if value is NO_PIECES else value)

    def ended(self) -> None:
        """The last piece was received."""
        self._finish(self.set_result, self._pieces or [])

    def failed(self, error: BaseException) -> None:
        """There is no answer."""
        self._finish(self.set_exception, error)

    def _finish(self, setter: Callable[[Any], None], outcome: Any) -> None:
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # Cancelled at this very moment.
            setter(outcome)


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

    def piece(self, value: Any, size: int, head: AnswerHead | None) -> bool:
        """One more; False if it cannot be kept and the call is over."""
        raise NotImplementedError

    def _finish(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def answered(self, value: Any, head: AnswerHead) -> None:
        """A model that does not stream gives one piece; an empty stream gives none."""
        if value is not NO_PIECES:
            self.piece(value, 0, head)
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

    def piece(self, value: Any, size: int, head: AnswerHead | None) -> bool:
        """One more."""
        if len(self._pieces) >= PIECES_MAX or (self._pieces and self._bytes + size > BYTES_MAX):
            self._finish(_outpaced())
            return False
        self.answer_head = head or self.answer_head
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

    def piece(self, value: Any, size: int, head: AnswerHead | None) -> bool:
        """One more."""
        if self._pieces.qsize() >= PIECES_MAX:
            self._finish(_outpaced())
            return False
        self.answer_head = head or self.answer_head
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
