"""`@serve.ingress(app)`: the routes of a FastAPI or Starlette application, which are methods of the deployment."""

from __future__ import annotations

import copyreg
import inspect
import logging
from collections.abc import Callable
from typing import Any

from jitney.compat.serve.exceptions import RayServeException

logger = logging.getLogger("jitney.compat.serve")

INGRESS = "__serve_ingress__"


def ingress(app: Any) -> Callable[[type], type]:
    """Answers HTTP with an ASGI application, or with what a function without arguments makes."""
    if inspect.isclass(app) or not callable(app):
        raise TypeError("@serve.ingress takes an ASGI application such as FastAPI(), or a function that makes one")

    _make_picklable()

    def decorate(target: type) -> type:
        if not inspect.isclass(target):
            raise TypeError(
                "@serve.ingress decorates classes, below @serve.deployment"
                if hasattr(target, "func_or_class")
                else f"@serve.ingress decorates classes, not {target!r}"
            )
        setattr(target, INGRESS, staticmethod(lambda: app))
        return target

    return decorate


def _make_picklable() -> None:
    """Starlette's state cannot be pickled as it is, and every application has one."""
    try:
        from starlette.datastructures import State
    except ImportError:
        return
    copyreg.pickle(State, lambda state: (State, (dict(state._state),)))


def app_of(instance: Any) -> Any:
    """The application of a deployment, with its routes bound to the object; None if it has none."""
    get = None if inspect.isfunction(instance) else getattr(type(instance), INGRESS, None)
    if get is None:
        return None
    app = get()
    if inspect.isfunction(app) and not inspect.iscoroutinefunction(app) and not inspect.signature(app).parameters:
        app = app()
    router = getattr(app, "router", None)
    if router is not None and hasattr(router, "routes"):
        router.routes[:] = [_bound(route, instance) for route in router.routes]
        if hasattr(app, "openapi_schema"):
            app.openapi_schema = None
    return app


def _bound(route: Any, instance: Any) -> Any:
    """A route whose function is a method of the object, made anew with the method itself."""
    function = getattr(route, "endpoint", None)
    name = _method_name(function, type(instance))
    if name is None:
        return route
    if "WebSocket" in type(route).__name__:
        logger.warning("%s is a WebSocket; Jitney serves none, and it is left out", route.path)
        return route
    taken = list(inspect.signature(type(route).__init__).parameters)[1:]
    options = {one: getattr(route, one) for one in taken if hasattr(route, one)}
    options["endpoint"] = getattr(instance, name)
    try:
        return type(route)(**options)
    except TypeError as error:
        raise RayServeException(f"the route {route.path} cannot be bound to its deployment: {error}") from None


def _method_name(function: Any, owner: type) -> str | None:
    if not inspect.isfunction(function):
        return None
    return next((name for one in owner.__mro__ for name, known in vars(one).items() if known is function), None)
