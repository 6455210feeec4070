"""What type checkers know of definitions and handles: the type of an answer, by the function that gives it.

A decorator returns what it is given. To type checkers a batch function is one that also knows the type of one item's
answer, so that `jitney.run(function).remote(x).result()` has it. The options of a decorator are the fields of the class
that holds them: they are not written down here again. Nothing here has an effect when a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, overload

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
    A = TypeVar("A", default=Any)
else:  # Defaults are for those who write `jitney.Handle` alone; Python 3.13 is the first that has them.
    from typing import ParamSpec, TypeVar

    P, R, A = ParamSpec("P"), TypeVar("R"), TypeVar("A")

Q = ParamSpec("Q")
Given = ParamSpec("Given")
F = TypeVar("F", bound=Callable[..., Any])


def default(value: Any) -> Any:
    """The value of a batch function's parameter for items that do not give it: `count: list[int] = jitney.default(1)`.

    It is the value itself, for one item; type checkers accept it where the hint of the parameter is a list.
    """
    return value


class BatchFunction(Generic[P, A, R]):
    """A function or method with `@jitney.batch`: called with `P` it returns `A`, and one item's answer is an `R`."""

    __name__: str
    __qualname__: str

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> A:
        """Calls it as it is written, with lists."""
        raise NotImplementedError

    @overload
    def __get__(self, instance: None, owner: Any = None) -> BatchFunction[P, A, R]: ...
    @overload
    def __get__(
        self: BatchFunction[Concatenate[Any, Q], A, R], instance: object, owner: Any = None
    ) -> BatchFunction[Q, A, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise NotImplementedError


class BatchDecorator(Protocol):
    """`@jitney.batch(...)`."""

    @overload
    def __call__(self, target: Callable[P, list[R]]) -> BatchFunction[P, list[R], R]: ...
    @overload
    def __call__(
        self, target: Callable[P, Coroutine[Any, Any, list[R]]]
    ) -> BatchFunction[P, Coroutine[object, object, list[R]], R]: ...
    @overload
    def __call__(self, target: Callable[P, Sequence[R]]) -> BatchFunction[P, Sequence[R], R]: ...
    @overload
    def __call__(self, target: F) -> F: ...


class BatchMark(Protocol[Given]):
    """`jitney.batch`, with or without options. They are keywords, so that no call fits two of the lines."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, target: Callable[P, list[R]]
    ) -> BatchFunction[P, list[R], R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, target: Callable[P, Coroutine[Any, Any, list[R]]]
    ) -> BatchFunction[P, Coroutine[object, object, list[R]], R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, target: Callable[P, Sequence[R]]
    ) -> BatchFunction[P, Sequence[R], R]: ...
    @overload
    def __call__(self, target: F) -> F: ...
    @overload
    def __call__(self, *nothing: Given.args, **options: Given.kwargs) -> BatchDecorator: ...


class PlainMark(Protocol[Given]):
    """`jitney.endpoint` and `jitney.model`, with or without options."""

    @overload
    def __call__(self, target: F) -> F: ...
    @overload
    def __call__(self, *nothing: Given.args, **options: Given.kwargs) -> Callable[[F], F]: ...


def batch_mark(options: Callable[Given, Any]) -> Callable[[Callable[..., Any]], BatchMark[Given]]:
    """Says to type checkers that a decorator of batch functions takes these options."""
    return lambda decorator: decorator


def plain_mark(options: Callable[Given, Any]) -> Callable[[Callable[..., Any]], PlainMark[Given]]:
    """Says to type checkers that a decorator takes these options."""
    return lambda decorator: decorator
