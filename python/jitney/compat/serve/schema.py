"""What `serve.status()` tells, under Ray Serve's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class ApplicationStatus(str, Enum):
    """The state of an application."""

    NOT_STARTED = "NOT_STARTED"
    DEPLOYING = "DEPLOYING"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DELETING = "DELETING"


class DeploymentStatus(str, Enum):
    """The state of a deployment."""

    UPDATING = "UPDATING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"


@dataclass
class DeploymentStatusOverview:
    """One deployment."""

    status: DeploymentStatus
    replica_states: dict[str, int] = field(default_factory=dict)
    message: str = ""


@dataclass
class ApplicationStatusOverview:
    """One application."""

    status: ApplicationStatus
    message: str = ""
    last_deployed_time_s: float = 0.0
    deployments: dict[str, DeploymentStatusOverview] = field(default_factory=dict)


@dataclass
class ServeStatus:
    """All applications."""

    proxies: dict[str, str] = field(default_factory=dict)
    applications: dict[str, ApplicationStatusOverview] = field(default_factory=dict)
