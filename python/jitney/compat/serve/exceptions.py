"""The exceptions of Ray Serve, under their names."""

from __future__ import annotations

from jitney.compat.absent import NotThere


class RayServeException(Exception):
    """What goes wrong in this layer, and not in the user's code."""


class ItemTooLarge(RayServeException, RuntimeError):
    """One item is larger than a whole batch may be."""


class BackPressureError(RayServeException):
    """Too many requests wait for the deployment."""

    def __init__(self, message: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts


class DeploymentUnavailableError(RayServeException):
    """The deployment does not run."""


class ReplicaUnavailableError(RayServeException):
    """The replica does not run; a call goes to another one here."""


class RequestCancelledError(RayServeException):
    """The request was cancelled."""

    def __init__(self, request_id: str = "") -> None:
        super().__init__(f"request {request_id} was cancelled" if request_id else "the request was cancelled")
        self.request_id = request_id


class NotSupported(RayServeException, NotThere):
    """A part of Ray Serve that this layer does not have; the message says what to use instead."""
