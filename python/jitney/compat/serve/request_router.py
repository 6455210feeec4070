"""Names of Ray Serve's routers, so that files which define one can be loaded: no router of one's own is ever asked.

All replicas of a deployment share one queue, and the first free one takes the next request.
"""

from __future__ import annotations

from jitney.compat.serve.config import KeptOptions
from jitney.compat.serve.context import ReplicaID

__all__ = [
    "FIFOMixin", "LocalityMixin", "MultiplexMixin", "PendingRequest", "ReplicaID", "ReplicaResult", "RequestRouter",
    "RunningReplica",
]  # fmt: skip


class RequestRouter(KeptOptions):
    """What would choose a replica."""


class PendingRequest(KeptOptions):
    """A request that would wait for it."""


class ReplicaResult(KeptOptions):
    """What a replica would give."""


class RunningReplica(KeptOptions):
    """A replica that it could choose."""


class FIFOMixin:
    """In the order of arrival."""


class LocalityMixin:
    """Near replicas first."""


class MultiplexMixin:
    """Replicas that have the model first."""
