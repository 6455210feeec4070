"""One replica: the object of a deployment in a worker, and how its methods are called.

Methods that are `async` run on the worker's event loop, as many at a time as `max_ongoing_requests` says; others run in
threads, so that they may wait for other deployments with `.result()`.
A replica that fails `check_health` three times in a row ends itself, and the server starts another one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import errno
import functools
import hashlib
import inspect
import itertools
import logging
import os
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from jitney.call.request import Request
from jitney.compat.serve.context import (
    DeploymentID,
    ReplicaContext,
    ReplicaID,
    ServeRequestContext,
    enter_request,
    restore_request,
    set_replica,
)
from jitney.compat.serve.deployment import Deployment, model_name
from jitney.compat.serve.exceptions import RayServeException
from jitney.compat.serve.handle import DeploymentHandle, find_with
from jitney.compat.serve.schema import ReplicaRank

logger = logging.getLogger(__name__)

FAILURES_MAX = 3
UNHEALTHY = 70
"""The worker's exit status."""


RANKS: list[socket.socket] = []
"""What holds this worker's rank until it ends."""


def take_rank(deployment: str) -> int:
    """The least number that no other worker of this server has in a deployment; it is free again when the worker ends.

    A name in Linux's abstract space can be bound once, and vanishes with its process: no file is left behind.
    """
    for rank in itertools.count():
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0jitney-rank-{os.getppid()}-{hashlib.sha256(deployment.encode()).hexdigest()[:32]}-{rank}")
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                return 0
            continue
        RANKS.append(held)
        return rank
    raise AssertionError("there are always more numbers")


class HealthCheck:
    """Calls `check_health` every period, on the replica's event loop where it has one."""

    def __init__(
        self, check: Callable[[], Any], period_s: float, timeout_s: float, end: Callable[[int], Any] = os._exit
    ) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._check, self._period_s, self._timeout_s, self._end = check, period_s, timeout_s, end
        self._failures = 0
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="check-health", daemon=True).start()

    def stop(self) -> None:
        """No more checks."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            self.once()

    def once(self) -> None:
        """One check."""
        try:
            self._call()
            self._failures = 0
        except Exception as error:
            self._failures += 1
            logger.warning("check_health failed %d times: %s: %s", self._failures, type(error).__name__, error)
        if self._failures >= FAILURES_MAX:
            logger.error("the replica is unhealthy and ends")
            self._end(UNHEALTHY)

    def _call(self) -> None:
        loop = self.loop
        if loop is not None and loop.is_running():
            future = asyncio.run_coroutine_threadsafe(self._settled(), loop)
            try:
                future.result(self._timeout_s)
            except concurrent.futures.TimeoutError:
                future.cancel()
                raise TimeoutError(f"no answer within {self._timeout_s} s") from None
            return
        asyncio.run(asyncio.wait_for(self._settled(), self._timeout_s))

    async def _settled(self) -> None:
        result = self._check()
        if inspect.isawaitable(result):
            await result


class Replica:
    """The object of a deployment; a subclass for each deployment has its endpoints."""

    deployment: Deployment
    app_name = "default"
    route_prefix = "/"
    routed: Any = None
    """The application that it is of."""
    worker_rank = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        options = self.deployment.deployment_options
        for name, value in ((options.actor.get("runtime_env") or {}).get("env_vars") or {}).items():
            os.environ[name] = str(value)
        identity = ReplicaID(uuid.uuid4().hex[:8], DeploymentID(self.deployment.name, self.app_name))
        rank = ReplicaRank(self.worker_rank, local_rank=self.worker_rank)
        self._context = ReplicaContext(identity, None, options, rank, options.workers, self.routed)
        set_replica(self._context)
        self._arguments = args, kwargs
        self.object: Any = None
        """Made by `setup`, inside the event loop that requests run in."""
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self._health: HealthCheck | None = None
        self._async: dict[str, bool] = {}
        """Which methods are `async`."""
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def __jitney_worker__(cls, facts: Any) -> None:
        """This worker is one of the replicas: it finds others by their names from now on, and gets its rank."""
        cls.worker_rank = take_rank(f"{facts.name} {facts.version}")
        find_with(lambda name, app: DeploymentHandle(name, app, lambda: facts.model(model_name(app, name))))

    async def _make(self) -> Any:
        target = self.deployment.func_or_class
        args, kwargs = self._arguments
        if not inspect.isclass(target):
            return target
        if not inspect.iscoroutinefunction(target.__init__):
            return target(*args, **kwargs)
        made = target.__new__(target)
        await target.__init__(made, *args, **kwargs)
        return made

    async def setup(self) -> None:
        """Makes the object and gives it its configuration before it serves."""
        self.object = await self._make()
        set_replica(replace(self._context, servable_object=self.object))
        options = self.deployment.deployment_options
        if options.user_config is not None:
            reconfigure = getattr(self.object, "reconfigure", None)
            if reconfigure is None:
                raise RayServeException(
                    f"{self.deployment.name} has a user_config, and no method reconfigure to take it"
                )
            wants_rank = len(inspect.signature(reconfigure).parameters) > 1
            await _settled(reconfigure(options.user_config, *([self._context.rank] if wants_rank else [])))
        check = None if inspect.isfunction(self.object) else getattr(self.object, "check_health", None)
        if check is not None:
            self._health = HealthCheck(check, options.health_check_period_s, options.health_check_timeout_s)

    async def teardown(self) -> None:
        """Ends the object."""
        if self._health is not None:
            self._health.stop()
        if inspect.isfunction(self.object):
            return
        end = getattr(self.object, "__del__", None)
        if end is not None:
            await _settled(end())
            type(self.object).__del__ = lambda _: None  # Once is enough.

    def method(self, name: str) -> Callable[..., Any]:
        """A method of the object, or the function itself."""
        found: Callable[..., Any] = self.object if inspect.isfunction(self.object) else getattr(self.object, name)
        if name not in self._async:
            self._async[name] = is_async(found)
        return found

    async def call(self, name: str, request: Request, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Calls a method for a caller who waits for one answer."""
        token = enter_request(self.context_of(request, web=False))
        try:
            function = self.method(name)
            if self._async[name]:
                return await function(*args, **kwargs)
            return await self.invoke(function, *args, **kwargs)
        finally:
            restore_request(token)

    async def stream(self, name: str, request: Request, args: list[Any], kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """Calls a generator."""
        token = enter_request(self.context_of(request, web=False))
        try:
            async for piece in self.pieces(self.method(name)(*args, **kwargs)):
                yield piece
        finally:
            restore_request(token)

    async def invoke(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function wherever its kind belongs."""
        if is_async(function):
            return await function(*args, **kwargs)
        result = await self.in_thread(functools.partial(function, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Calls a function in a thread, in this request's context."""
        loop = self._loop = asyncio.get_running_loop()
        if self._health is not None:
            self._health.loop = loop
        if self._threads is None:
            most = self.deployment.deployment_options.concurrency
            self._threads = concurrent.futures.ThreadPoolExecutor(most, "replica")
        return await loop.run_in_executor(self._threads, contextvars.copy_context().run, function)

    async def pieces(self, generator: Any) -> AsyncIterator[Any]:
        """The pieces of any generator."""
        if inspect.isawaitable(generator):
            generator = await generator
        if hasattr(generator, "__aiter__"):
            try:
                async for piece in generator:
                    yield piece
            finally:
                close = getattr(generator, "aclose", None)
                if close is not None:
                    await close()
            return
        end = object()
        try:
            while (piece := await self.in_thread(functools.partial(next, generator, end))) is not end:
                yield piece
        finally:
            getattr(generator, "close", lambda: None)()

    def context_of(self, request: Request, web: bool) -> ServeRequestContext:
        """What the code may ask about a request."""
        return ServeRequestContext(request, self.route_prefix if web else "", self.app_name, web=web)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, method or callable object is `async`."""
    bare = function.func if isinstance(function, functools.partial) else function
    return inspect.iscoroutinefunction(bare) or inspect.iscoroutinefunction(getattr(bare, "__call__", None))  # noqa: B004


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether a function gives its answer in pieces, also below a decorator such as `@serve.batch`."""
    bare = inspect.unwrap(function)
    return inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare)


async def _settled(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result
