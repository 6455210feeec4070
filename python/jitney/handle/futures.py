"""What a caller holds while its call is under way: a future of its own kind of program.

Inside an event loop it is an `asyncio.Future`, elsewhere a `concurrent.futures.Future` that can be
awaited too, so everything that takes futures takes these. The answer of a model that streams is
the list of its pieces; `Handle.stream` gives them one by one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Generator
from typing import Any

from jitney.definition.decorators import R
from jitney.handle.connections import Connection
from jitney.handle.frames import Timed, Timing
from jitney.wire.calls import NO_PIECES


class Pieces(Timed):
    """What both kinds keep of an answer under way."""

    number = 0
    _pieces: list[Any] | None = None

    def piece(self, value: Any, size: int, timing: Timing | None) -> bool:
        """A piece of it."""
        if timing is not None:
            self.timing, self._pieces = timing, []
        if self._pieces is not None:
            self._pieces.append(value)
        return True


class AsyncCall(Pieces, asyncio.Future[R]):
    """A call made inside an event loop: await it. Cancelling removes it from the model's queue."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(loop=connection.loop)
        self._connection = connection

    def result(self, timeout: float | None = None) -> R:
        """The answer of a finished call. A loop cannot wait inside a function, so await it instead."""
        if not self.done():
            raise RuntimeError(
                "this call was made inside an event loop, which cannot wait here: write `await call` instead of "
                "call.result(); a function that is not async can be run by `await asyncio.to_thread(function)`"
            )
        return super().result()

    def cancel(self, msg: Any = None) -> bool:
        """Cancels the call."""
        if not self.done():
            self._connection.cancel(self)
        return super().cancel(msg)

    def answered(self, value: Any, timing: Timing) -> None:
        """The whole answer."""
        if not self.done():
            self.timing = timing
            self.set_result([] if value is NO_PIECES else value)

    def ended(self) -> None:
        """The last piece was received."""
        if not self.done():
            pieces: Any = self._pieces or []
            self.set_result(pieces)

    def failed(self, error: BaseException) -> None:
        """There is no answer."""
        if not self.done():
            self.set_exception(error)
            self._log_traceback = False  # Whoever gave the call up does not want to read about it.


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

    def answered(self, value: Any, timing: Timing) -> None:
        """The whole answer."""
        self.timing = timing
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
