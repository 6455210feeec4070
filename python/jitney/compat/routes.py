"""Routes of a web application that are methods of a class: bound to an object of it, so that they get `self`."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from jitney.http.asgi import NO_WEBSOCKETS

logger = logging.getLogger(__name__)


def bound_to(app: Any, instance: Any) -> Any:
    """The application with those of its routes bound that are methods of the object's class."""
    router = getattr(app, "router", None)
    if router is not None and hasattr(router, "routes"):
        router.routes[:] = [_bound(route, instance) for route in router.routes]
        if hasattr(app, "openapi_schema"):
            app.openapi_schema = None
    return app


def _bound(route: Any, instance: Any) -> Any:
    """A route whose function is a method of the object, made anew with the method itself."""
    if "WebSocket" in type(route).__name__:
        logger.warning("%s is left out. %s", route.path, NO_WEBSOCKETS)
        return route
    name = _method_name(getattr(route, "endpoint", None), type(instance))
    if name is None:
        return route
    taken = list(inspect.signature(type(route).__init__).parameters)[1:]
    options = {one: getattr(route, one) for one in taken if hasattr(route, one)}
    options["endpoint"] = getattr(instance, name)
    try:
        return type(route)(**options)
    except TypeError as error:
        raise TypeError(f"the route {route.path} cannot be bound to its class: {error}") from None


def _method_name(function: Any, owner: type) -> str | None:
    if not inspect.isfunction(function):
        return None
    return next((name for one in owner.__mro__ for name, known in vars(one).items() if known is function), None)
