"""`bentoml.depends`: another service as an attribute, whose APIs are called like methods.

In a worker the attribute is a `ServiceProxy`, whose calls go through the other service's batches. In a plain program it
is an object of the other service in the same process.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jitney.compat.bentoml.answering import received, sent
from jitney.compat.bentoml.exceptions import BentoMLConfigException, NotSupported
from jitney.handle.handle import running_loop


class ServiceDependency:
    """What `bentoml.depends` returns."""

    def __init__(self, service: Any, url: str | None = None) -> None:
        self.service = service
        self.url = url
        self.slot = ""
        self._local: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.slot = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._local is None:
            self._local = self.connected()
        return self._local

    def connected(self) -> Any:
        """What stands for the service where no part does: a server elsewhere, or an object of this process."""
        if self.url is not None:
            from jitney.compat.bentoml.client import RemoteService

            return RemoteService(self.url)
        return LocalService(self.service())


def depends(
    on: Any = None, *, url: str | None = None, deployment: str | None = None, cluster: str | None = None
) -> Any:
    """Another service that this one calls: `other = bentoml.depends(Other)`, then `self.other.method(x)`.

    `self.other.to_async.method(x)` is awaited, whether the method is `async` or not. With `url` it is a server
    that runs elsewhere.
    """
    if deployment is not None or cluster is not None:
        raise NotSupported("bentoml.depends(deployment=...) is not in jitney.compat: there is no cloud; give a url=")
    if on is None and url is None:
        raise BentoMLConfigException("bentoml.depends needs a service, as in bentoml.depends(Other)")
    if on is not None and not hasattr(on, "__jitney_application__"):
        raise BentoMLConfigException(f"bentoml.depends takes what @bentoml.service made, not {on!r}")
    return ServiceDependency(on, url)


class LocalService:
    """A service in the same process."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance

    @property
    def to_async(self) -> Any:
        """The same with methods to await."""
        return _Methods(lambda name: _awaited(getattr(self._instance, name)))

    @property
    def to_sync(self) -> Any:
        """The same."""
        return self._instance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)


class ServiceProxy:
    """A service that is another part of the application."""

    def __init__(self, handle: Any, methods: dict[str, tuple[str, Callable[..., Any], Any]]) -> None:
        self._handle = handle
        self._methods = methods
        """By attribute: the endpoint, the method and the hint of its answer."""

    @property
    def to_async(self) -> Any:
        """The same with methods to await."""
        return _Methods(lambda name: self._call(name, is_async=True))

    @property
    def to_sync(self) -> Any:
        """The same with methods that wait."""
        return _Methods(lambda name: self._call(name, is_async=False))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        call = self._call(name, None)
        self.__dict__[name] = call  # The next look costs nothing.
        return call

    def _call(self, name: str, is_async: bool | None) -> Callable[..., Any]:
        if name not in self._methods:
            raise AttributeError(f"the service has no API {name!r}; it has: {', '.join(self._methods)}")
        endpoint, method, output = self._methods[name]
        handle = self._handle.options(method_name=endpoint)
        bare = inspect.unwrap(method)
        streams = inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare)
        waits = inspect.iscoroutinefunction(bare) or inspect.isasyncgenfunction(bare) if is_async is None else is_async
        if streams:
            return _streaming(handle, waits)
        return _awaiting(handle, output) if waits else _waiting(handle, output)


class _Methods:
    """Methods that are made when they are asked for."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return self._make(name)


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    return [sent(one) for one in args], {name: sent(one) for name, one in kwargs.items()}


def _awaiting(handle: Any, output: Any) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        places, names = _arguments(args, kwargs)
        return received(await handle.remote(*places, **names), output, tempfile.mkdtemp)

    return call


def _waiting(handle: Any, output: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        places, names = _arguments(args, kwargs)
        return received(outside_loop(lambda: handle.remote(*places, **names).result()), output, tempfile.mkdtemp)

    return call


def _streaming(handle: Any, is_async: bool) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        places, names = _arguments(args, kwargs)
        if is_async:
            return handle.stream(*places, **names)
        return outside_loop(lambda: handle.stream(*places, **names))

    return call


def outside_loop(call: Callable[[], Any]) -> Any:
    """Calls what waits. Where a loop runs, in a thread beside it: the loop waits too, as it would in BentoML."""
    if running_loop() is None:
        return call()
    return _beside().submit(contextvars.copy_context().run, call).result()


@functools.cache
def _beside() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, thread_name_prefix="bentoml-waits")


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    """A local method to await."""
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return method

    async def call(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(method, *args, **kwargs)

    return call
