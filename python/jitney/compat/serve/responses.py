"""What a call by handle returns at once: a response to wait for or await, or a generator of its pieces.

A response may be an argument of another call, before it is there: that call then waits for it.
Calls whose arguments are answers to come begin when all of these are there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import Any

from jitney.call.errors import BadInput, Error, Expired, NotFound, Overloaded, RemoteError
from jitney.compat.references import ObjectRef
from jitney.compat.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RayServeException,
    RequestCancelledError,
)
from jitney.handle.handle import running_loop

Begin = Callable[[Sequence[Any], dict[str, Any]], Any]
"""Begins the call with arguments that are all there; gives a future, or a stream."""


class PendingAnswer:
    """An answer to come."""

    _future: Any

    def result(self, timeout_s: float | None = None) -> Any:
        """Waits for it."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Any]:
        raise NotImplementedError


async def begin_later(begin: Begin, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The answer of a call that begins when its arguments are there, in an event loop."""
    args, kwargs = await awaited_all(args, kwargs)
    found = begin(args, kwargs)
    return await found if inspect.isawaitable(found) else found


async def awaited_all(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, once all of them are there."""
    waits = pending_ones(args, kwargs)
    values = dict(zip(map(id, waits), await asyncio.gather(*waits)))
    return filled(args, kwargs, lambda one: values[id(one)])


def when_all(waits: Sequence[PendingAnswer], begin: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """A future of the call that begins when all responses are there."""
    whole: concurrent.futures.Future[Any] = concurrent.futures.Future()
    left = len(waits)
    lock = threading.Lock()

    finish = functools.partial(_settle, whole)

    def one_more(_: Any) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last and not whole.cancelled():
            try:
                begin().add_done_callback(finish)
            except BaseException as error:
                whole.set_exception(error)

    for one in waits:
        one._future.add_done_callback(one_more)
    return whole


def _settle(whole: concurrent.futures.Future[Any], call: Any) -> None:
    """Gives a future what has become of a call."""
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # Cancelled meanwhile.
        try:
            whole.set_result(call.result())
        except BaseException as error:
            whole.set_exception(error)


def pending_ones(args: Sequence[Any], kwargs: dict[str, Any]) -> list[PendingAnswer]:
    """The arguments that are answers to come."""
    return [one for one in (*args, *kwargs.values()) if isinstance(one, PendingAnswer)]


def filled(
    args: Sequence[Any], kwargs: dict[str, Any], value: Callable[[PendingAnswer], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with values in place of responses."""

    def fill(one: Any) -> Any:
        return value(one) if isinstance(one, PendingAnswer) else one

    return [fill(one) for one in args], {name: fill(one) for name, one in kwargs.items()}


NO_SUCH_METHOD = 404


class DeploymentResponse(PendingAnswer):
    """The answer to come of one call."""

    def __init__(self, begin: Begin, args: Sequence[Any], kwargs: dict[str, Any], request_id: str) -> None:
        self.request_id = request_id
        waits = pending_ones(args, kwargs)
        self._loop = running_loop()
        self._cancelled = False
        self._future: Any
        if not waits:
            self._future = begin(args, kwargs)
        elif self._loop is not None:
            self._future = self._loop.create_task(begin_later(begin, args, kwargs))
        else:
            self._future = when_all(waits, lambda: begin(*filled(args, kwargs, lambda one: one._future.result())))

    def result(self, timeout_s: float | None = None, *, _skip_asyncio_check: bool = False) -> Any:
        """The answer; waits for it. Inside an event loop, await the response instead."""
        if running_loop() is not None and not self._future.done():
            raise RuntimeError(
                "Sync methods should not be called from within an `asyncio` event loop. Use `await response` instead."
            )
        try:
            if isinstance(self._future, concurrent.futures.Future):
                return self._future.result(timeout_s)
            return self._await_elsewhere(timeout_s)
        except concurrent.futures.TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s} s") from None
        except (concurrent.futures.CancelledError, asyncio.CancelledError):
            raise RequestCancelledError(self.request_id) from None
        except (RemoteError, BadInput) as error:
            raise as_serve(error) from error

    def _await_elsewhere(self, timeout_s: float | None) -> Any:
        """The answer of a call that belongs to an event loop of another thread."""
        if self._future.done():
            return self._future.result()
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(_awaited(self._future), self._loop).result(timeout_s)

    def cancel(self) -> None:
        """Gives the call up; a call that waits is not run."""
        self._cancelled = True
        self._future.cancel()

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._cancelled

    def done(self) -> bool:
        """Whether the answer is there."""
        return bool(self._future.done())

    async def _to_object_ref(self) -> ObjectRef:
        """The answer as a reference of Ray's, for functions with `@ray.remote`."""
        return self._to_object_ref_sync()

    def _to_object_ref_sync(self, **private: Any) -> ObjectRef:
        if isinstance(self._future, concurrent.futures.Future):
            return ObjectRef(self._future)
        whole: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._future.add_done_callback(functools.partial(_settle, whole))
        return ObjectRef(whole)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        future = self._future
        if isinstance(future, concurrent.futures.Future):
            future = asyncio.wrap_future(future)
        try:
            return await future
        except (RemoteError, BadInput) as error:
            raise as_serve(error) from error
        except asyncio.CancelledError:
            if self._cancelled:
                raise RequestCancelledError(self.request_id) from None
            self._future.cancel()
            raise

    def __repr__(self) -> str:
        return f"DeploymentResponse(request_id={self.request_id!r})"

    def __reduce__(self) -> Any:
        raise RuntimeError("a DeploymentResponse cannot be pickled; pass its result")


class DeploymentResponseGenerator:
    """The pieces of an answer, as they come: `for` outside of event loops, `async for` inside."""

    def __init__(self, begin: Begin, args: Sequence[Any], kwargs: dict[str, Any], request_id: str) -> None:
        self.request_id = request_id
        self._begin, self._args, self._kwargs = begin, args, kwargs
        self._stream = None if pending_ones(args, kwargs) else begin(args, kwargs)
        self._cancelled = False

    def cancel(self) -> None:
        """Gives up the rest."""
        self._cancelled = True
        if self._stream is not None:
            self._stream.cancel()

    def cancelled(self) -> bool:
        """Whether the rest was given up."""
        return self._cancelled

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._stream is None:
            self._stream = self._begin(*filled(self._args, self._kwargs, lambda one: one.result()))
        if not hasattr(self._stream, "__next__"):
            raise RuntimeError("this stream was begun inside an event loop: read it with `async for`")
        try:
            return next(self._stream)
        except (RemoteError, BadInput) as error:
            raise as_serve(error) from error

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._stream is None:
            args, kwargs = await awaited_all(self._args, self._kwargs)
            self._stream = self._begin(args, kwargs)
        if not hasattr(self._stream, "__anext__"):
            return await _next_of_thread(self._stream)
        try:
            return await self._stream.__anext__()
        except (RemoteError, BadInput) as error:
            raise as_serve(error) from error

    async def aclose(self) -> None:
        """The same as `cancel`."""
        self.cancel()


def as_serve(error: Error) -> BaseException:
    """The server's refusal under Ray Serve's name for it."""
    if isinstance(error, BadInput):  # No such method, or arguments that do not fit it.
        return RayServeException(str(error)) if error.status == NO_SUCH_METHOD else TypeError(str(error))
    if isinstance(error, Overloaded):
        return BackPressureError(str(error))
    if isinstance(error, Expired):
        return TimeoutError(str(error))
    if isinstance(error, NotFound):
        return RayServeException(str(error)) if "endpoint" in str(error) else DeploymentUnavailableError(str(error))
    return error


async def _next_of_thread(stream: Any) -> Any:
    """The next piece of a stream that was begun outside of event loops."""
    end = object()
    piece = await asyncio.get_running_loop().run_in_executor(None, next, stream, end)
    if piece is end:
        raise StopAsyncIteration
    return piece


async def _awaited(future: Any) -> Any:
    return await future
