"""What plugin files declare, kept in one list per process until the host asks for it. It calls nothing.

The values that pass between a plugin and its host are here too. They know nothing of the wire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

Body = str | bytes | dict[str, Any] | list[Any] | None


@dataclass(frozen=True)
class PluginRequest:
    """A client's request. Header names are found in any spelling; `authorize` sees no body, since none is read yet."""

    method: str
    path: str
    query_string: str
    headers: Mapping[str, str]
    listener: str
    """`inference` or `management`: where it came in."""
    protocol: str
    """`http` or `grpc`; the path of a gRPC call is `/package.Service/Method`."""
    client: str
    """The client's address, such as `127.0.0.1:40000`."""
    body: bytes = b""
    operation: str = ""
    """What the request is about to do, such as `predict` or `register`; empty for what an endpoint is given."""
    model: str | None = None
    """The model it is for, whichever way it came in."""
    version: str | None = None
    """The version that would answer; the default one where the request names none."""
    workflow: str | None = None
    """The workflow it is for."""

    @property
    def query(self) -> dict[str, str]:
        """The fields of the query; the last of several with one name."""
        return dict(parse_qsl(self.query_string, keep_blank_values=True))

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class PluginResponse:
    """An endpoint's answer: bytes and text as they are, anything else as JSON, which is also its content type then."""

    body: Body = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 200 <= self.status <= 599:
            raise ValueError(f"status must be from 200 to 599, not {self.status}")


@dataclass(frozen=True)
class Allow:
    """Yes. The tenant, where one is named, counts instead of whatever the client claims."""

    tenant: str | None = None

    def __post_init__(self) -> None:
        if self.tenant is not None and not (self.tenant.isascii() and 1 <= len(self.tenant) <= 128):
            raise ValueError(f"tenant must be 1 to 128 ASCII characters, not {self.tenant!r}")


@dataclass(frozen=True)
class Deny:
    """No, with a status of 400 to 499 and a sentence for the client."""

    status: int = 403
    message: str = "Access denied."

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 499:
            raise ValueError(f"status must be from 400 to 499, not {self.status}")


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
