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
class LoggingConfig:
    """How Ray would log. It has no effect, with a warning: `jitney serve --log-format json` and --log-level do it."""

    encoding: str = "TEXT"
    log_level: int | str = "INFO"
    logs_dir: str | None = None
    enable_access_log: bool = True
    additional_log_standard_attrs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReplicaRank:
    """Which of its deployment's replicas one is, counted from 0; all of them are on one node."""

    rank: int
    node_rank: int = 0
    local_rank: int = 0


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
