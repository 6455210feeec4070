"""What the code of a deployment can ask about the request that it runs for, and about its replica.

The request's part is a context variable: tasks and generators that a request starts see it too. The replica's part is
one per process, since a worker runs one replica.
"""

from __future__ import annotations

import contextlib
import contextvars
from dataclasses import dataclass, field
from typing import Any

from jitney.call.request import Request
from jitney.compat.serve.exceptions import RayServeException
from jitney.compat.serve.schema import ReplicaRank


class ServeRequestContext:
    """The request that the code runs for. Nothing of it is read before somebody asks."""

    def __init__(
        self,
        request: Request | None = None,
        route: str = "",
        app_name: str = "",
        multiplexed_model_id: str | None = None,
        web: bool = False,
    ) -> None:
        self._request = request
        self._model_id = multiplexed_model_id
        self.route = route
        self.app_name = app_name
        self.web = web
        """Whether it came over HTTP."""

    @property
    def request_id(self) -> str:
        """The id by which it is found in logs."""
        return "" if self._request is None else self._request.id

    @property
    def multiplexed_model_id(self) -> str:
        """The model that it asks for; empty if it asks for none."""
        if self._model_id is None:
            self._model_id = "" if self._request is None else self._request.multiplexed_model_id
        return self._model_id


@dataclass(frozen=True)
class DeploymentID:
    """The name of a deployment in its application."""

    name: str
    app_name: str = "default"

    def __str__(self) -> str:
        return f"Deployment(name='{self.name}', app='{self.app_name}')"


@dataclass(frozen=True)
class ReplicaID:
    """One replica of a deployment."""

    unique_id: str
    deployment_id: DeploymentID

    def to_full_id_str(self) -> str:
        """Application, deployment and replica in one text."""
        return f"{self.deployment_id.app_name}#{self.deployment_id.name}#{self.unique_id}"


@dataclass(frozen=True)
class ReplicaContext:
    """Which replica this process is."""

    replica_id: ReplicaID
    servable_object: Any = None
    options: Any = field(default=None, repr=False)
    rank: ReplicaRank = field(default_factory=lambda: ReplicaRank(0))
    world_size: int = 1
    """How many replicas the deployment has."""
    routed: Any = field(default=None, repr=False)
    """The application that it is of."""

    @property
    def app_name(self) -> str:
        """The application's name."""
        return self.replica_id.deployment_id.app_name

    @property
    def deployment(self) -> str:
        """The deployment's name."""
        return self.replica_id.deployment_id.name

    @property
    def replica_tag(self) -> str:
        """What tells this replica from the others."""
        return self.replica_id.unique_id


NOBODY = ServeRequestContext()
_request: contextvars.ContextVar[ServeRequestContext] = contextvars.ContextVar("jitney_serve_request", default=NOBODY)
_replica: ReplicaContext | None = None


def request_context() -> ServeRequestContext:
    """The request that the calling code runs for; an empty one outside of requests."""
    return _request.get()


def enter_request(context: ServeRequestContext) -> contextvars.Token[ServeRequestContext]:
    """The calling code runs for this request from now on."""
    return _request.set(context)


def restore_request(token: contextvars.Token[ServeRequestContext]) -> None:
    """And now no longer."""
    with contextlib.suppress(ValueError):  # A stream that is closed by another task; nothing of it goes on there.
        _request.reset(token)


def get_multiplexed_model_id() -> str:
    """The model that the request asks for; empty if it asks for none."""
    return _request.get().multiplexed_model_id


def set_replica(context: ReplicaContext) -> None:
    """This process is that replica."""
    global _replica
    _replica = context


def get_replica_context() -> ReplicaContext:
    """Which replica this process is."""
    if _replica is None:
        raise RayServeException("serve.get_replica_context() works only inside a deployment")
    return _replica


_get_internal_replica_context = get_replica_context


def current_replica() -> ReplicaContext | None:
    """The same, or None outside of deployments."""
    return _replica


class Origin:
    """`serve.context` of the older API: where the queries of the running call come from."""

    @property
    def web(self) -> bool:
        """Whether they came over HTTP, and not from Python."""
        return _request.get().web


context = Origin()
