"""Calls whose arguments are answers to come: they begin when all of these are there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

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

    def finish(call: Any) -> None:
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # Cancelled meanwhile.
            try:
                whole.set_result(call.result())
            except BaseException as error:
                whole.set_exception(error)

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
