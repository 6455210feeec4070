"""`DeploymentHandle`: a deployment as an object whose calls return at once, over a handle of Jitney's."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jitney.compat.serve.context import DeploymentID, request_context
from jitney.compat.serve.exceptions import RayServeException
from jitney.compat.serve.responses import DeploymentResponse, DeploymentResponseGenerator

__all__ = ["DeploymentHandle", "DeploymentResponse", "DeploymentResponseGenerator"]

MODEL_ID_HEADER = "serve_multiplexed_model_id"
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
        **private: Any,
    ) -> DeploymentHandle:
        """The same handle with other options; those left out stay as they are.

        `stream` is for methods that are generators. `multiplexed_model_id` is the model that the calls ask for.
        `use_new_handle_api` and Ray's private options have no effect.
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
        request_id = str(uuid.uuid4())
        kind = DeploymentResponseGenerator if options.stream else DeploymentResponse
        return kind(lambda *given: self._begin(options, *given), args, kwargs, request_id)

    def _begin(self, options: HandleOptions, args: Any, kwargs: dict[str, Any]) -> Any:
        model_id = options.multiplexed_model_id or request_context().multiplexed_model_id
        endpoint = CALL_ENDPOINT if options.method_name == CALL else options.method_name
        headers = {MODEL_ID_HEADER: model_id} if model_id else None
        handle = self._connect().options(method_name=endpoint, headers=headers)
        return handle.stream(*args, **kwargs) if options.stream else handle.remote(*args, **kwargs)

    def __getattr__(self, name: str) -> DeploymentHandle:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.options(method_name=name)

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
