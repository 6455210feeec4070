"""The names of deployments, where Ray's documents import them from."""

from __future__ import annotations

from jitney.compat.serve.context import DeploymentID, ReplicaID

__all__ = ["DeploymentID", "ReplicaID"]
