"""What plugin files declare, kept in one list per process until the host asks for it. It calls nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jitney.plugin.messages import PluginRequest

Function = TypeVar("Function", bound=Callable[[PluginRequest], Any])

LISTENERS = ("inference", "management")
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class PluginEndpoint:
    """A path and the function that answers it."""

    path: str
    methods: tuple[str, ...]
    listener: str
    function: Callable[[PluginRequest], Any]


@dataclass
class Declared:
    """Everything this process offers."""

    endpoints: list[PluginEndpoint] = field(default_factory=list)
    authorizers: list[Callable[[PluginRequest], Any]] = field(default_factory=list)


declared = Declared()


def endpoint(
    path: str, methods: Iterable[str] = ("GET",), listener: str = "inference"
) -> Callable[[Function], Function]:
    """Answers requests to exactly this path (a trailing slash is ignored) on one of the two listeners."""
    wanted = (methods,) if isinstance(methods, str) else methods
    chosen = tuple(method.upper() for method in wanted)
    if not path.startswith("/") or path.rstrip("/") == "":
        raise ValueError(f"endpoint path {path!r} must begin with a slash and name something")
    if listener not in LISTENERS:
        raise ValueError(f"endpoint {path}: listener {listener!r} is none of {', '.join(LISTENERS)}")
    if not chosen or any(method not in METHODS for method in chosen):
        raise ValueError(f"endpoint {path}: methods {list(chosen)} must be some of {', '.join(METHODS)}")

    def declare(function: Function) -> Function:
        declared.endpoints.append(PluginEndpoint(path.rstrip("/"), chosen, listener, function))
        return function

    return declare


def authorize(function: Function) -> Function:
    """Asks this function about every request before anything else happens; there can be one in a server."""
    declared.authorizers.append(function)
    return function
