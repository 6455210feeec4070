"""As much of Ray's API as programs around Ray Serve use: `from jitney.compat import ray` in place of `import ray`.

Functions with `@ray.remote` run in threads of this program, and `ray.get` waits for them and for calls of Ray Serve's
older handles. There is no cluster behind it: `jitney serve --ray` and `jitney infer --ray` use a real one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from jitney.compat.absent import AbsentName
from jitney.compat.references import ObjectRef

THREADS_MAX = 256
"""Functions that run at a time; more wait."""


__all__ = [
    "GetTimeoutError", "ObjectRef", "cancel", "get", "init", "is_initialized", "put", "remote", "shutdown", "wait",
]  # fmt: skip


class RayError(Exception):
    """What goes wrong in this layer."""


class GetTimeoutError(RayError, TimeoutError):
    """`ray.get` waited for long enough."""


class RemoteFunction:
    """A function that runs in a thread: `function.remote(...)` returns at once."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        functools.update_wrapper(self, function)

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef:
        """Begins the call; arguments that are references are waited for first."""
        return ObjectRef(_threads().submit(self._run, args, kwargs))

    def options(self, **options: Any) -> RemoteFunction:
        """The same function; what Ray would need for placing it has no effect."""
        return RemoteFunction(self._function, {**self._options, **options})

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = [get(one) if isinstance(one, ObjectRef) else one for one in args]
        named = {name: get(one) if isinstance(one, ObjectRef) else one for name, one in kwargs.items()}
        result = self._function(*values, **named)
        return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"remote functions cannot be called directly; use {self._function.__name__}.remote()")


class _Pool:
    """The threads of this program; none before they are needed."""

    lock = threading.Lock()
    executor: concurrent.futures.ThreadPoolExecutor | None = None
    initialized = False


def init(*args: Any, **options: Any) -> dict[str, Any]:
    """Nothing has to be prepared; options have no effect."""
    _Pool.initialized = True
    return {}


def is_initialized() -> bool:
    """Whether `init` was called, and `shutdown` not since."""
    return _Pool.initialized


def shutdown(*args: Any, **options: Any) -> None:
    """Ends the threads, and the server of `serve.run`."""
    from jitney.compat import serve

    serve.shutdown()
    with _Pool.lock:
        executor, _Pool.executor, _Pool.initialized = _Pool.executor, None, False
    if executor is not None:
        executor.shutdown(wait=False, cancel_futures=True)


def remote(*args: Any, **options: Any) -> Any:
    """Makes a function run in a thread: `@ray.remote` or `@ray.remote(num_cpus=1)`."""

    def decorate(target: Any) -> RemoteFunction:
        if inspect.isclass(target):
            raise NotImplementedError(
                f"{target.__name__}: actors are not there in Jitney's layer; make it a deployment: @serve.deployment"
            )
        return RemoteFunction(target, options)

    return decorate(args[0]) if args else decorate


def put(value: Any) -> ObjectRef:
    """A reference to a value that is there already."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    future.set_result(value)
    return ObjectRef(future)


def get(refs: Any, *, timeout: float | None = None) -> Any:
    """The value of a reference, or of each of a list; waits for them."""
    if isinstance(refs, (list, tuple)):
        end = None if timeout is None else time.monotonic() + timeout
        return [_value(one, None if end is None else max(0.0, end - time.monotonic())) for one in refs]
    return _value(refs, timeout)


def wait(
    refs: Sequence[ObjectRef], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """Those that are there, up to `num_returns`, and the others."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        done = [one for one in refs if one._future.done()]
        if len(done) >= min(num_returns, len(refs)):
            break
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            break
        pending = [one._future for one in refs if not one._future.done()]
        concurrent.futures.wait(pending, left, concurrent.futures.FIRST_COMPLETED)
    ready = done[:num_returns]
    return ready, [one for one in refs if one not in ready]


def cancel(ref: ObjectRef, **options: Any) -> None:
    """Gives a call up, if it does not run yet."""
    ref._future.cancel()


def _value(ref: Any, timeout: float | None) -> Any:
    if not isinstance(ref, ObjectRef):
        if hasattr(ref, "result"):  # A response of a deployment's handle.
            return ref.result(timeout)
        raise TypeError(f"ray.get takes references, not {type(ref).__name__}")
    try:
        return ref._future.result(timeout)
    except concurrent.futures.TimeoutError:
        if ref._future.done():
            raise
        raise GetTimeoutError(f"no value within {timeout} s") from None


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def _threads() -> concurrent.futures.ThreadPoolExecutor:
    with _Pool.lock:
        if _Pool.executor is None:
            _Pool.executor = concurrent.futures.ThreadPoolExecutor(THREADS_MAX, "ray")
        return _Pool.executor


_ABSENT = {
    **dict.fromkeys(("actor", "get_actor", "kill", "method"), "there are no actors; make it a deployment"),
    **dict.fromkeys(("cluster_resources", "available_resources", "nodes"), "there is no cluster behind it"),
    **dict.fromkeys(("air", "data", "rllib", "train", "tune", "workflow", "util"), "import ray itself for it"),
    "timeline": "`jitney serve --otlp-endpoint` sends traces",
}
"""Names of Ray that are not here; they fail when they are used."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "serve":
        from jitney.compat import serve

        return serve
    if name in _ABSENT:
        return AbsentName(f"ray.{name}", _ABSENT[name])
    raise AttributeError(
        f"ray.{name} is not there in Jitney's layer, which has init, get, put, wait, cancel, remote functions, "
        "shutdown and serve; import ray itself for the rest"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
