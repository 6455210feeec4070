"""`bentoml.Service` of BentoML 1.0: functions with `@svc.api(input=, output=)` that call runners.

A function of a legacy service is called with what its descriptor made of the client's request.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jitney.call.request import Request
from jitney.compat.bentoml import configuration
from jitney.compat.bentoml.api import run_hooks
from jitney.compat.bentoml.context import Context
from jitney.compat.bentoml.exceptions import BentoMLConfigException, NotSupported
from jitney.compat.bentoml.io import IODescriptor, Multipart, Posted
from jitney.compat.bentoml.parameters import CONTEXT_NAMES
from jitney.compat.bentoml.runner import Runner
from jitney.compat.bentoml.served import HEALTH, ServedObject, make_class, mark
from jitney.definition.application import Bound, Dependency


@dataclass(frozen=True)
class FunctionApi:
    """One function of a service."""

    name: str
    route: str
    function: Callable[..., Any]
    input: IODescriptor
    output: IODescriptor

    @functools.cached_property
    def context(self) -> str | None:
        """The parameter that gets the context."""
        parameters = inspect.signature(self.function).parameters.values()
        named = (one.name for one in parameters if one.name in CONTEXT_NAMES or one.annotation is Context)
        return next(named, None)

    @property
    def is_async(self) -> bool:
        """Whether the function is to be awaited."""
        return inspect.iscoroutinefunction(self.function)

    def arguments(self, posted: Posted, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """What the function is called with."""
        value = self.input.read(posted)
        named = dict(value) if isinstance(self.input, Multipart) else {}
        if self.context is not None:
            named[self.context] = context
        places = [] if isinstance(self.input, Multipart) or not self._takes_input else [value]
        return places, named

    @functools.cached_property
    def _takes_input(self) -> bool:
        return any(name != self.context for name in inspect.signature(self.function).parameters)


def endpoint(api: FunctionApi, side_by_side: bool) -> Any:
    """The function of the endpoint; those that are not `async` run in threads beside those that are."""

    def run(given: dict[str, Any], request: Request) -> Any:
        with Context(request) as context:
            places, named = api.arguments(Posted(given, request), context)
            return api.output.write(api.function(*places, **named), request)

    async def of_loop(self: Any, bentoml_request: Request, body: Any = None, **fields: Any) -> Any:
        with Context(bentoml_request) as context:
            places, named = api.arguments(Posted({"body": body, **fields}, bentoml_request), context)
            return api.output.write(await api.function(*places, **named), bentoml_request)

    async def in_thread(self: Any, bentoml_request: Request, body: Any = None, **fields: Any) -> Any:
        return await self.in_pool(run, {"body": body, **fields}, bentoml_request)

    def plain(self: Any, bentoml_request: Request, body: Any = None, **fields: Any) -> Any:
        return run({"body": body, **fields}, bentoml_request)

    function: Any = of_loop if api.is_async else in_thread if side_by_side else plain
    function.__doc__ = api.function.__doc__
    return mark(function, batched=False, options={"name": api.name, "route": f"POST {api.route}"})


F = TypeVar("F", bound=Callable[..., Any])

SLOT = "bentoml_runner_"


class Service:
    """A service of functions. Its runners are parts with workers of their own."""

    def __init__(
        self, name: str, *, runners: Sequence[Runner] | None = None, models: Sequence[Any] | None = None
    ) -> None:
        self.name = name
        self.runners = list(runners or ())
        self.models = list(models or ())
        self.apis: dict[str, FunctionApi] = {}
        self._startup: list[Callable[..., Any]] = []
        self._shutdown: list[Callable[..., Any]] = []
        self._deployment: list[Callable[..., Any]] = []
        names = [runner.name for runner in self.runners]
        twice = next((one for one in names if names.count(one) > 1), None)
        if twice is not None:
            raise BentoMLConfigException(f"two runners are called {twice!r}; give one of them another name=")

    def api(
        self,
        input: IODescriptor | None = None,
        output: IODescriptor | None = None,
        *,
        name: str | None = None,
        doc: str | None = None,
        route: str | None = None,
    ) -> Callable[[F], F]:
        """Makes a function an API: `POST /NAME`, read as `input` and answered as `output`."""
        if not isinstance(input, IODescriptor) or not isinstance(output, IODescriptor):
            raise BentoMLConfigException("@svc.api needs input= and output=, such as bentoml.io.JSON()")

        def attach(function: F) -> F:
            own = name or function.__name__
            path = route if route is not None else own
            self.apis[own] = FunctionApi(own, f"/{path.lstrip('/')}", function, input, output)
            return function

        return attach

    def on_startup(self, func: F) -> F:
        """Runs in each worker before it serves."""
        self._startup.append(func)
        return func

    def on_shutdown(self, func: F) -> F:
        """Runs in each worker when it ends."""
        self._shutdown.append(func)
        return func

    def on_deployment(self, func: F) -> F:
        """Runs once, before workers are started."""
        self._deployment.append(func)
        return func

    def mount_asgi_app(self, app: Any, path: str = "/", name: str | None = None) -> None:
        """Is not here."""
        raise NotSupported("svc.mount_asgi_app is not in jitney.compat: serve the application with jitney.asgi(app)")

    mount_wsgi_app = add_asgi_middleware = mount_asgi_app

    def __jitney_application__(self) -> Bound:
        return self._entry

    @functools.cached_property
    def _entry(self) -> Bound:
        if not self.apis:
            raise BentoMLConfigException(f"service {self.name!r} has no API; decorate a function with @svc.api")
        config = configuration.for_service(self.name, {})
        slots = {f"{SLOT}{at}": runner for at, runner in enumerate(self.runners)}
        parts = {slot: Dependency(runner.part(self.name)) for slot, runner in slots.items()}
        side_by_side = any(one.is_async for one in self.apis.values())
        members: dict[str, Any] = {f"api_{name}": endpoint(one, side_by_side) for name, one in self.apis.items()}
        members.update(service=self, slots=slots, threads=4, __jitney_deployment__=staticmethod(self.deploy))
        options = {**configuration.options_of(self.name, config), "health_routes": HEALTH}
        return Bound(make_class(self.name, ServedFunctions, members, parts, options), name=self.name)

    def deploy(self) -> None:
        """Runs the hooks of a deployment."""
        for hook in self._deployment:
            hook()

    def hooks(self, kind: str) -> list[Callable[[], Any]]:
        """The hooks of the start or the end, ready to be called."""
        found = self._startup if kind == "startup" else self._shutdown
        return [_with_context(hook) for hook in found]


class ServedFunctions(ServedObject):
    """The object that a worker runs for a service of functions."""

    service: Service
    slots: dict[str, Runner]

    def make(self) -> Any:
        """Tells the runners of this process where their parts are."""
        for slot, runner in self.slots.items():
            runner.connect(getattr(self, slot))
        return self.service

    def setup(self) -> Any:
        """Runs the hooks of the start."""
        return run_hooks(self.service.hooks("startup"))

    def teardown(self) -> Any:
        """Runs the hooks of the end."""
        self.close_pool()
        return run_hooks(self.service.hooks("shutdown"))


def _with_context(hook: Callable[..., Any]) -> Callable[[], Any]:
    return functools.partial(hook, Context()) if inspect.signature(hook).parameters else hook
