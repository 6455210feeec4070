"""The decorators. They only attach a note to what they decorate and return it unchanged, so a
decorated function is called, tested and debugged like any other.

To type checkers a batch function is one that also knows the type of one item's answer, so that
`jitney.run(function).remote(x).result()` has it. The options of a decorator are the fields of the class that holds
them: they are not written down here again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, overload

from jitney.definition.options import Options, make_options

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


NOTE = "__jitney__"


@dataclass(frozen=True)
class Note:
    """What a decorator attaches."""

    options: Options
    kind: str
    """`batch`, `endpoint` or `model`."""


def note_of(target: Any) -> Note | None:
    """The note on a function, method or class, if it carries one of its own."""
    note = vars(target).get(NOTE) if isinstance(target, type) else getattr(target, NOTE, None)
    return note if isinstance(note, Note) else None


def _decorate(target: F | None, kind: str, given: Mapping[str, Any]) -> Any:
    options = make_options(kind, given)

    def attach(target: F) -> F:
        setattr(target, NOTE, Note(options, kind))
        return target

    return attach if target is None else attach(target)


@batch_mark(Options)
def batch(target: Any = None, **options: Any) -> Any:
    """Marks a function, a method or a callable class that takes many items at a time.

    Every argument arrives as a list with one element per item, and the answer must be a list of the
    same length. Arguments that are numpy arrays, torch tensors or pandas frames are joined along
    `batch_dim` instead, and the answer is split by the same rows. A parameter's default is used for
    items that do not give it.

    `cost` is the cost of one request, and `max_batch_size` limits the sum; `bucket` is the group that it may be
    batched with. As an expression (`"len"`, `"len(text) // 64"`, `"shape[1]"`, `"image.shape[1] * image.shape[2]"`)
    the server evaluates them, and forms batches by them. As a function of the request's arguments they are called in
    the worker, which takes batches apart that do not fit; a client that sends the cost in the header
    `x-jitney-cost`, or by `handle.options(cost=...)`, spares it that. With `padded` the cost is a length, and
    `max_batch_size` limits the number of items times the longest of them: for a function that pads its items to a
    common length. The server then batches similar lengths together.
    `sizes` and `lengths` are the numbers of items and the lengths that the function is run at, each rounded up by
    `jitney.pad` or `jitney.graphs`; the server forms batches with that in mind. Before a worker serves, it runs the
    items of `warm_up` (or `examples`) at exactly these. `overlap` is how many batches a worker holds, so that the
    next one is read and the last one answered while the function runs; by itself 3 where torch uses a GPU, else 1.
    `device` ("cpu", "gpu"), `device_ids`, `gpu_memory_fraction` and `gpu_turns` say which GPUs the workers get and
    how they share them; `jitney.device()` is what a worker got. `cpus="auto"` gives each worker processors of its
    own. `ray={"num_cpus": 2, "resources": {"big": 1}}` says
    what a worker needs of its node where a Ray cluster places workers.
    `concurrency` lets one worker run several batches of an `async` function at a time. `openai="embeddings"` makes a
    function that turns texts into vectors answer OpenAI's clients under `/v1/embeddings`. `route` is one more path of
    the endpoint, which with `route_shared` other models may have too; with `raw` it takes `jitney.HttpRequest`, and
    `mount` sends it everything below a prefix.
    `examples` are arguments of single items, for `jitney check` and for the API's page.
    """
    return _decorate(target, "batch", options)


@plain_mark(Options)
def endpoint(target: Any = None, **options: Any) -> Any:
    """Marks a function or method that takes one item at a time. Options are those of `batch`
    without the ones about batches."""
    return _decorate(target, "endpoint", options)


@plain_mark(Options)
def model(target: Any = None, **options: Any) -> Any:
    """Marks a class with several endpoints: its methods that carry `batch` or `endpoint`.

    One object is made per worker; `setup()` and `teardown()` are called around its life if it
    has them.
    """
    return _decorate(target, "model", options)
