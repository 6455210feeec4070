"""The calls that wait for a batch: their arguments, and how those of several become parallel lists.

Arguments are matched by the function's signature and not by their order, so that callers may name them in any order.
A parameter that only some of the callers give has its default for the others.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from jitney.call.context import CURRENT
from jitney.compat.serve.exceptions import RayServeException

PIECES_MAX = 4096
"""Pieces of a stream that may wait for their reader."""
LIST_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class BatchArguments:
    """Reads the arguments of calls of one function."""

    def __init__(self, function: Callable[..., Any], is_method: bool) -> None:
        parameters = list(inspect.signature(function).parameters.values())[is_method:]
        self._signature = inspect.Signature(parameters)
        self._parameters = parameters

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """One call's; a TypeError if they do not fit."""
        return self._signature.bind(*args, **kwargs)

    def first_of(self, bound: inspect.BoundArguments) -> Any:
        """The first argument, which is the item itself."""
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                return value[0] if value else None
            if kind is inspect.Parameter.VAR_KEYWORD:
                return next(iter(value.values()), None)
            return value
        return None

    def together(self, calls: Sequence[inspect.BoundArguments]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of all calls, each a list with one element per call."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self._parameters:
            name, kind = parameter.name, parameter.kind
            given = [call.arguments[name] for call in calls if name in call.arguments]
            if not given:
                continue
            if kind is inspect.Parameter.VAR_POSITIONAL:
                positional += [list(column) for column in zip(*(call.arguments.get(name, ()) for call in calls))]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                keys = dict.fromkeys(key for one in given for key in one)
                named.update({key: [call.arguments.get(name, {}).get(key) for call in calls] for key in keys})
            else:
                column = [call.arguments.get(name, parameter.default) for call in calls]
                if kind is inspect.Parameter.KEYWORD_ONLY or len(positional) < self._position(name):
                    named[name] = column
                else:
                    positional.append(column)
        return positional, named

    def _position(self, name: str) -> int:
        return [one.name for one in self._parameters if one.kind in LIST_KINDS].index(name)


class BatchItem:
    """One call that waits: what it brings, and who gets the answer."""

    def __init__(self, bound: inspect.BoundArguments, first: Any, model_id: str, arrived: float) -> None:
        self.bound = bound
        self.first = first
        self.model_id = model_id
        self.arrived = arrived
        self.call = CURRENT.get()
        """The call of the replica that it is made for."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        raise NotImplementedError

    def answer(self, value: Any) -> None:
        """The answer, or a piece of it."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """There is no answer, or no more of it."""
        raise NotImplementedError

    def end(self) -> None:
        """The last piece was given."""


class UnaryItem(BatchItem):
    """A call with one answer."""

    def __init__(self, future: Any, *facts: Any) -> None:
        super().__init__(*facts)
        self.future = future

    @property
    def is_gone(self) -> bool:
        return bool(self.future.done())

    def answer(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class StreamItem(BatchItem):
    """A call whose answer comes in pieces; they wait for their reader within a bound."""

    def __init__(self, make_future: Callable[[], Any], *facts: Any) -> None:
        super().__init__(*facts)
        self._make_future = make_future
        self._pieces: deque[Any] = deque()
        self._reader: Any = None
        self._error: BaseException | None = None
        self._over = False
        self._left = False

    @property
    def is_gone(self) -> bool:
        return self._left or self._over

    def answer(self, value: Any) -> None:
        if len(self._pieces) >= PIECES_MAX:
            self.fail(RayServeException("the stream was read too slowly"))
        elif not self.is_gone:
            self._pieces.append(value)
            self._wake()

    def fail(self, error: BaseException) -> None:
        if not self.is_gone:
            self._over, self._error = True, error
            self._wake()

    def end(self) -> None:
        self._over = True
        self._wake()

    def stop_reading(self) -> None:
        """The reader reads no more."""
        self._left = True

    async def read(self) -> Any:
        """The next piece; StopAsyncIteration after the last one."""
        while not self._pieces:
            if self._over:
                error, self._error = self._error, None
                raise error or StopAsyncIteration
            self._reader = self._make_future()
            await self._reader
        return self._pieces.popleft()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
