"""Backends of the older API as definitions.

A backend is a model with two endpoints, `web` and `call`, so that a batch never has calls of both origins. With
`@serve.accept_batch` they take batches, which the server forms when a worker is free.
An endpoint of the older API is a name whose requests the server shares between the models of its backends, and a small
model that has the route and asks this name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitney.compat.serve.context import ServeRequestContext, enter_request, restore_request
from jitney.compat.serve.exceptions import RayServeException
from jitney.compat.serve.web_request import FlaskRequest, PythonRequest, told_of
from jitney.definition.application import Bound, Dependency
from jitney.definition.decorators import NOTE, Note
from jitney.definition.options import Options
from jitney.http.request import HttpRequest
from jitney.http.response import Response, encode

METHOD_HEADER = "x-serve-call-method"
ROUTER_CALLS = 255
NO_LIMIT_S = 24 * 3600


@dataclass(frozen=True)
class EndpointRoute:
    """The route of an endpoint of the older API."""

    model: str
    route: str
    methods: tuple[str, ...]
    shared: str
    """The name that its backends share."""

    def __jitney_application__(self) -> Bound:
        options = Options(name=self.model, mount=self.route, response_timeout_s=NO_LIMIT_S)
        given = (Dependency(self.shared), list(self.methods))
        return Bound(RouterReplica, given, name=self.model, options=options)


class RouterReplica:
    """Makes calls of requests; which backend answers is chosen by the server."""

    def __init__(self, shared: Any, methods: list[str]) -> None:
        self._shared, self._methods = shared, methods

    async def http(self, request: HttpRequest) -> Response:
        """Requests of the route."""
        if request.method not in self._methods:
            allowed = ", ".join(self._methods)
            return Response(f"Methods {allowed} are allowed here, not {request.method}", 405, {"allow": allowed})
        told = {**told_of(request), "method_name": request.headers.get(METHOD_HEADER, "")}
        answer = await self._shared.options(method_name="web").remote(told)
        return Response(answer["body"], media_type=answer["type"])


setattr(RouterReplica.http, NOTE, Note(Options(raw=True, concurrency=ROUTER_CALLS), "endpoint"))
setattr(RouterReplica, NOTE, Note(Options(), "model"))


ACCEPTS_BATCHES = "__serve_accept_batch__"


def accept_batch(target: Any) -> Any:
    """Marks a backend, a function or a class, that takes lists of requests and returns a list."""
    if not callable(target):
        raise TypeError("@serve.accept_batch decorates functions and classes")
    setattr(target, ACCEPTS_BATCHES, True)
    return target


@dataclass
class BackendConfig:
    """How a backend runs."""

    max_batch_size: int | None = None
    batch_wait_timeout: float = 0
    num_replicas: int = 1
    max_concurrent_queries: int | None = None
    user_config: Any = None
    internal: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Backend:
    """A function or class that answers requests."""

    model: str
    """Its name among the server's models."""
    target: Any
    args: tuple[Any, ...]
    config: BackendConfig
    idle: bool = False
    """Whether it has no worker before a request comes to itself: its name is there for the shares of others."""

    @property
    def accepts_batches(self) -> bool:
        """Whether it takes lists."""
        return bool(getattr(self.target, ACCEPTS_BATCHES, False))

    def __jitney_application__(self) -> Bound:
        config = self.config
        options: dict[str, Any] = {"name": self.model, "workers": config.num_replicas, "policy": "opportunistic"}
        if self.idle:
            options.update(workers=0, max_workers=1)
        if config.batch_wait_timeout:
            options.update(policy="window", max_batch_delay_ms=config.batch_wait_timeout * 1000)
        body: dict[str, Any] = {"backend": self, NOTE: Note(Options(**options, response_timeout_s=NO_LIMIT_S), "model")}
        for name, function in (("web", _web), ("call", _call)):
            body[name] = self._endpoint(name, function)
        return Bound(type(self.model, (BackendReplica,), body))

    def _endpoint(self, name: str, function: Callable[..., Any]) -> Any:
        size = self.config.max_batch_size or 1
        if size > 1 and not self.accepts_batches:
            raise RayServeException(
                f"{self.model}: max_batch_size={size} is for backends with @serve.accept_batch, which take lists"
            )

        def endpoint(self: Any, item: Any) -> Any:
            return function(self, item) if batched else function(self, [item])[0]

        batched = self.accepts_batches
        endpoint.__annotations__ = {"item": list[Any] if batched else Any}
        options = Options(name=name, max_batch_size=size) if batched else Options(name=name)
        setattr(endpoint, NOTE, Note(options, "batch" if batched else "endpoint"))
        return endpoint


class BackendReplica:
    """The object of a backend in a worker."""

    backend: Backend

    def __init__(self) -> None:
        target = self.backend.target
        self.object: Any = target(*self.backend.args) if inspect.isclass(target) else target
        config = self.backend.config.user_config
        if config is not None:
            reconfigure: Callable[[Any], Any] = self.function("reconfigure")
            reconfigure(config)

    def function(self, method: str) -> Callable[..., Any]:
        """The function, or a method of the object."""
        is_own = inspect.isfunction(self.object) or method in ("", "__call__")
        found: Callable[..., Any] = self.object if is_own else getattr(self.object, method)
        return found


def _web(self: BackendReplica, items: list[Any]) -> list[Any]:
    """Requests from the web; the answers as they are sent."""
    calls: list[Any] = [(one.get("method_name", ""), FlaskRequest(one), {}) for one in items]
    return [_sent(answer) for answer in _answers(self, calls, web=True)]


def _call(self: BackendReplica, items: list[Any]) -> list[Any]:
    """Calls from Python."""
    calls = [(one["method"], PythonRequest(one["args"], one["kwargs"]), one["kwargs"]) for one in items]
    return _answers(self, calls, web=False)


def _answers(self: BackendReplica, calls: list[Any], web: bool) -> list[Any]:
    """One answer per call; calls of different methods run apart."""
    found: list[Any] = [None] * len(calls)
    token = enter_request(ServeRequestContext(web=web))
    try:
        for method in dict.fromkeys(method for method, _, _ in calls):
            places = [at for at, call in enumerate(calls) if call[0] == method]
            function = self.function(method)
            run = _batched if self.backend.accepts_batches else _single
            for at, answer in zip(places, run(function, [calls[at] for at in places])):
                found[at] = answer
    finally:
        restore_request(token)
    return found


def _single(function: Callable[..., Any], calls: list[Any]) -> list[Any]:
    return [_settled(function(request, **_taken(function, [kwargs], alone=True))) for _, request, kwargs in calls]


def _batched(function: Callable[..., Any], calls: list[Any]) -> list[Any]:
    requests = [request for _, request, _ in calls]
    result = _settled(function(requests, **_taken(function, [kwargs for _, _, kwargs in calls])))
    if isinstance(result, (str, bytes, Mapping, set, frozenset)) or not hasattr(result, "__iter__"):
        raise RayServeException(
            f"a backend with @serve.accept_batch returns a list with one answer per request, not "
            f"{type(result).__name__}"
        )
    answers = list(result)
    if len(answers) != len(calls):
        raise RayServeException(
            f"a backend with @serve.accept_batch returned {len(answers)} answers to {len(calls)} requests"
        )
    return answers


def _taken(function: Callable[..., Any], calls: list[dict[str, Any]], alone: bool = False) -> dict[str, Any]:
    """The keyword arguments that a function takes: each as a list with one element per call."""
    parameters = _parameters(function)
    names = dict.fromkeys(name for one in calls for name in one)
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    taken = [name for name in names if takes_all or name in parameters]
    return {name: calls[0][name] if alone else [one.get(name) for one in calls] for name in taken}


@functools.lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _settled(result: Any) -> Any:
    if inspect.isawaitable(result):
        import asyncio

        async def awaited() -> Any:
            return await result

        return asyncio.run(awaited())
    return result


def _sent(answer: Any) -> dict[str, Any]:
    """An answer as it travels to the router: what a client gets."""
    kind, body = encode(answer.tolist() if hasattr(answer, "tolist") else answer)
    return {"type": kind, "body": bytes(body)}
