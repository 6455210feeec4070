"""`DeploymentHandle`: a deployment as an object whose calls return at once, over a handle of Jitney's."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jitney.call.request import MODEL_ID_HEADER
from jitney.compat.serve.context import DeploymentID, request_context
from jitney.compat.serve.exceptions import RayServeException
from jitney.compat.serve.objects import packed
from jitney.compat.serve.responses import DeploymentResponse, DeploymentResponseGenerator
from jitney.wire.values import ValueFormatError

__all__ = ["DeploymentHandle", "DeploymentResponse", "DeploymentResponseGenerator"]

REQUEST_ID_HEADER = "x-request-id"
CALL = "__call__"
CALL_ENDPOINT = "call"


@dataclass(frozen=True)
class HandleOptions:
    """How calls are made."""

    method_name: str = CALL
    stream: bool = False
    multiplexed_model_id: str = ""


class DeploymentHandle:
    """A deployment. `handle.remote(x)` calls it, `handle.method.remote(x)` one of its methods."""

    def __init__(
        self, name: str, app_name: str, connect: Callable[[], Any], options: HandleOptions | None = None
    ) -> None:
        self.deployment_name = name
        self.app_name = app_name
        self._connect = connect
        """Gives the handle of Jitney's; called at the first call, so that making a handle costs nothing."""
        self._handle_options = options or HandleOptions()
        self._plain: Any = None
        """The handle of this method for calls without headers of their own, once it was made."""

    @property
    def deployment_id(self) -> DeploymentID:
        """The deployment and its application."""
        return DeploymentID(self.deployment_name, self.app_name)

    @property
    def is_initialized(self) -> bool:
        """Handles need no preparation here."""
        return True

    def options(
        self,
        *,
        method_name: str | None = None,
        multiplexed_model_id: str | None = None,
        stream: bool | None = None,
        use_new_handle_api: bool | None = None,
        session_id: str | None = None,
        request_serialization: str | None = None,
        response_serialization: str | None = None,
        **private: Any,
    ) -> DeploymentHandle:
        """The same handle with other options; those left out stay as they are.

        `stream` is for methods that are generators. `multiplexed_model_id` is the model that the calls ask for.
        The others have no effect: values are encoded in one way, and all replicas share one queue.
        """
        unknown = [name for name in private if not name.startswith("_")]
        if unknown:
            raise TypeError(f"DeploymentHandle.options() got an unexpected keyword argument {unknown[0]!r}")
        given: dict[str, Any] = {
            "method_name": method_name,
            "multiplexed_model_id": multiplexed_model_id,
            "stream": stream,
        }
        options = replace(self._handle_options, **{name: one for name, one in given.items() if one is not None})
        return DeploymentHandle(self.deployment_name, self.app_name, self._connect, options)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the deployment: a DeploymentResponse, or with `stream=True` a DeploymentResponseGenerator."""
        options = self._handle_options
        context = request_context()
        request_id = context.request_id or str(uuid.uuid4())
        headers = {} if context.request_id else {REQUEST_ID_HEADER: request_id}  # A caller's own travels along.
        if options.multiplexed_model_id:
            headers[MODEL_ID_HEADER] = options.multiplexed_model_id
        kind = DeploymentResponseGenerator if options.stream else DeploymentResponse
        return kind(lambda *given: self._begin(options, headers, *given), args, kwargs, request_id)

    def _begin(self, options: HandleOptions, headers: dict[str, str], args: Any, kwargs: dict[str, Any]) -> Any:
        if not headers and self._plain is not None:
            handle = self._plain
        else:
            endpoint = CALL_ENDPOINT if options.method_name == CALL else options.method_name
            handle = self._connect().options(method_name=endpoint, headers=headers or None)
            if not headers:
                self._plain = handle
        call = handle.stream if options.stream else handle.remote
        try:
            return call(*args, **kwargs)
        except ValueFormatError:  # Perhaps an object of the user's; what is wrong otherwise is said again.
            return call(*map(packed, args), **{name: packed(one) for name, one in kwargs.items()})

    def __getattr__(self, name: str) -> DeploymentHandle:
        if name.startswith("_"):
            raise AttributeError(name)
        handle = self.options(method_name=name)
        self.__dict__[name] = handle  # The next look costs nothing.
        return handle

    def __repr__(self) -> str:
        return f"DeploymentHandle(deployment={self.deployment_name!r})"

    def __reduce__(self) -> Any:
        return named_handle, (self.deployment_name, self.app_name, self._handle_options)

    def shutdown(self) -> None:
        """Nothing is held."""


Find = Callable[[str, str], DeploymentHandle]
_find: list[Find] = []
"""How this process finds deployments by name: set by the driver's server, or by the replica."""


def find_with(find: Find | None) -> None:
    """Says how deployments are found by name from now on."""
    _find[:] = [] if find is None else [find]


def named_handle(name: str, app_name: str = "default", options: HandleOptions | None = None) -> DeploymentHandle:
    """The handle of a deployment, by its name; it is looked for at the first call."""

    def connect() -> Any:
        if not _find:
            raise RayServeException(
                f"the deployment {name!r} cannot be found by its name here: call serve.run first, and inside of "
                "deployments pass handles by .bind(...)"
            )
        return _find[-1](name, app_name)._connect()

    return DeploymentHandle(name, app_name, connect, options)
