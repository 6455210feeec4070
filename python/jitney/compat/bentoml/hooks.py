"""Lifecycle hooks: methods that run when a deployment, a worker starts or a worker ends."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

NOTE = "__bentoml_hook__"
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
    setattr(bare, NOTE, (*getattr(bare, NOTE, ()), kind))
    return func


def _kinds(member: Any) -> tuple[str, ...]:
    kinds: tuple[str, ...] = getattr(getattr(member, "__func__", member), NOTE, ())
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
