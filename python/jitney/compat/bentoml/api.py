"""Notes on methods of a service: `@bentoml.api` makes one part of its API; hooks run when a deployment or a worker
starts, or when a worker ends.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from jitney.compat.bentoml.exceptions import BentoMLConfigException
from jitney.definition.decorators import plain_mark

NOTE = "__bentoml_api__"
MAX_BATCH_SIZE = 100
"""Rows in a batch unless the code says otherwise, as in BentoML."""


@dataclass(frozen=True, kw_only=True)
class ApiNote:
    """What the decorator says; a name and a route that it does not say are the method's."""

    name: str = ""
    route: str | None = None
    batchable: bool = False
    is_task: bool = False
    batch_dim: int | tuple[int, int] = 0
    max_batch_size: int = MAX_BATCH_SIZE
    max_latency_ms: float | None = None
    input_spec: Any = None
    output_spec: Any = None


@plain_mark(ApiNote)
def api(func: Any = None, **options: Any) -> Any:
    """Makes a method of a service an API: `POST /NAME` with a JSON object of its parameters.

    A batchable one takes rows (a list, an array, a frame) and returns as many; the rows of all callers that wait are
    run together, at most `max_batch_size` of them.
    """
    note = ApiNote(**{name: value for name, value in options.items() if value is not None})
    if note.batchable and not (isinstance(note.max_batch_size, int) and note.max_batch_size > 1):
        raise BentoMLConfigException(f"max_batch_size must be a whole number above 1, not {note.max_batch_size!r}")

    def attach(function: Any) -> Any:
        name = note.name or function.__name__
        path = name if note.route is None else note.route
        setattr(function, NOTE, replace(note, name=name, route=path if path.startswith("/") else f"/{path}"))
        return function

    return attach if func is None else attach(func)


@plain_mark(ApiNote)
def task(func: Any = None, **options: Any) -> Any:
    """The same as `api`, which can be asked for an answer later, too: below its route are `submit`, `status`, `get`,
    `cancel` and `retry`. The server keeps tasks as jobs, through crashes."""
    return api(func, **{**options, "is_task": True})


def api_note(function: Any) -> ApiNote | None:
    """The note of a method that is an API."""
    note = getattr(function, NOTE, None)
    return note if isinstance(note, ApiNote) else None


F = TypeVar("F", bound=Callable[..., Any])

HOOK = "__bentoml_hook__"
STARTUP, SHUTDOWN, DEPLOYMENT = "startup", "shutdown", "deployment"


def on_startup(func: F) -> F:
    """Runs in each worker, after `__init__` and before it serves; may be `async`."""
    return _marked(func, STARTUP)


def on_shutdown(func: F) -> F:
    """Runs in each worker when it ends; may be `async`."""
    return _marked(func, SHUTDOWN)


def on_deployment(func: F) -> F:
    """Runs once, before workers are started; it has no object yet and so takes no `self`, or is a static method."""
    return _marked(func, DEPLOYMENT)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Imports of packages that only workers have: `with bentoml.importing(): import torch`."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error}; `jitney serve` runs services in the Python that --python names") from error


def hooks_of(owner: type, kind: str) -> list[str]:
    """The names of a class's hooks of one kind, in the order in which they are written."""
    written = {name: None for one in reversed(owner.__mro__) for name in vars(one)}
    return [name for name in written if kind in _kinds(inspect.getattr_static(owner, name, None))]


def _marked(func: F, kind: str) -> F:
    bare: Any = getattr(func, "__func__", func)  # A static method holds the function that is marked.
    setattr(bare, HOOK, (*getattr(bare, HOOK, ()), kind))
    return func


def _kinds(member: Any) -> tuple[str, ...]:
    kinds: tuple[str, ...] = getattr(getattr(member, "__func__", member), HOOK, ())
    return kinds


def run_hooks(hooks: list[Callable[[], Any]]) -> Any:
    """Runs hooks one after the other; to be awaited if one of them is `async`."""
    if any(inspect.iscoroutinefunction(hook) for hook in hooks):
        return _run_async(hooks)
    for hook in hooks:
        hook()
    return None


async def _run_async(hooks: list[Callable[[], Any]]) -> None:
    for hook in hooks:
        done = hook()
        if inspect.isawaitable(done):
            await done
