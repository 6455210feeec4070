"""What type checkers know of definitions and handles: the type of an answer, by the function that gives it.

A decorator returns what it is given. To type checkers a batch function is one that also knows the type of one item's
answer, so that `jitney.run(function).remote(x).result()` has it. Nothing here has an effect when a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, TypedDict, overload

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from jitney.definition.options import Dims
    from jitney.values.tensor import Tensor

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
    A = TypeVar("A", default=Any)
else:  # Defaults are for those who write `jitney.Handle` alone; Python 3.13 is the first that has them.
    from typing import ParamSpec, TypeVar

    P, R, A = ParamSpec("P"), TypeVar("R"), TypeVar("A")

Q = ParamSpec("Q")
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


class DecoratorOptions(TypedDict, total=False):
    """The options of the decorators, as `jitney.definition.options.Options` has them."""

    max_batch_size: int | None
    max_latency_ms: float | None
    max_batch_delay_ms: float | None
    policy: str | None
    batch_dim: Dims | None
    cost: Callable[..., float] | str | None
    padded: bool | None
    sizes: Sequence[int] | None
    lengths: Sequence[int] | None
    bucket: Callable[..., Any] | str | None
    concurrency: int | None
    workers: int | None
    name: str | None
    version: str | None
    queue: int | None
    response_timeout_s: int | None
    startup_timeout_s: int | None
    mix_origins: bool | None
    overlap: int | None
    device: str | None
    device_ids: Sequence[int] | None
    gpu_memory_fraction: float | None
    gpu_turns: bool | None
    ray: Mapping[str, Any] | None
    openai: str | None
    raw: bool | None
    route: str | None
    mount: str | None
    health_routes: Mapping[str, str] | None
    metric_names: Sequence[tuple[str, Mapping[str, str]]] | None
    examples: Sequence[Mapping[str, Any]] | None
    warm_up: Sequence[Mapping[str, Any]] | None
    inputs: Mapping[str, Tensor] | None
    outputs: Mapping[str, Tensor] | None
