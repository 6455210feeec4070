"""The options of `@serve.deployment`, checked where they are written down."""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jitney.compat.serve.config import AutoscalingConfig, made_of
from jitney.definition.options import CONCURRENCY_MAX

logger = logging.getLogger("jitney.compat.serve")

QUEUE_MAX = 65535
ONGOING_DEFAULT = 5
UNUSED = (
    "placement_group_bundles",
    "placement_group_strategy",
    "placement_group_bundle_label_selector",
    "max_replicas_per_node",
    "logging_config",
    "request_router_config",
    "backpressure_config",
    "gang_scheduling_config",
    "max_constructor_retry_count",
    "rolling_update_percentage",
    "max_surge_percent",
    "deployment_actors",
)
"""Options of Ray that have no effect here."""


@dataclass(frozen=True)
class DeploymentOptions:
    """The options of one deployment; None where Ray's default holds."""

    name: str | None = None
    version: str | None = None
    num_replicas: int | str | None = None
    route_prefix: str | None = None
    ray_actor_options: Mapping[str, Any] | None = None
    user_config: Any = None
    max_ongoing_requests: int | None = None
    max_queued_requests: int = -1
    autoscaling_config: Any = None
    graceful_shutdown_wait_loop_s: float = 2.0
    graceful_shutdown_timeout_s: float = 20.0
    health_check_period_s: float = 10.0
    health_check_timeout_s: float = 30.0
    unused: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        replicas = self.num_replicas
        if isinstance(replicas, bool) or (replicas is not None and replicas != "auto" and not _is_whole(replicas, 1)):
            raise ValueError(f"num_replicas must be a whole number of at least 1, or 'auto', not {replicas!r}")
        if self.max_ongoing_requests is not None and not _is_whole(self.max_ongoing_requests, 1):
            raise ValueError(f"max_ongoing_requests must be at least 1, not {self.max_ongoing_requests!r}")
        if not _is_whole(self.max_queued_requests, -1) or self.max_queued_requests == 0:
            raise ValueError(f"max_queued_requests must be -1 or at least 1, not {self.max_queued_requests!r}")
        if isinstance(replicas, int) and self.autoscaling_config is not None:
            raise ValueError("give num_replicas or autoscaling_config, not both")
        for name in ("health_check_period_s", "health_check_timeout_s", "graceful_shutdown_timeout_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise ValueError(f"{name} must be a number of seconds, not {value!r}")
        prefix = self.route_prefix
        if prefix is not None and not prefix.startswith("/"):
            raise ValueError(f"route_prefix must begin with /, not {prefix!r}")
        object.__setattr__(self, "autoscaling_config", made_of(AutoscalingConfig, self.autoscaling_config))

    def but(self, given: Mapping[str, Any]) -> DeploymentOptions:
        """The same with others in place of these."""
        known = {one.name for one in dataclasses.fields(self)} - {"unused"}
        given = {**given}
        if "max_concurrent_queries" in given:  # The name up to Ray 2.9.
            given["max_ongoing_requests"] = given.pop("max_concurrent_queries")
        for name in given:
            if name not in known and name not in UNUSED:
                near = difflib.get_close_matches(name, [*known, *UNUSED], 1)
                raise TypeError(
                    f"@serve.deployment has no option {name!r}" + (f"; did you mean {near[0]}?" if near else "")
                )
        unused = tuple(dict.fromkeys((*self.unused, *(name for name in given if name in UNUSED and given[name]))))
        taken = {name: value for name, value in given.items() if name in known}
        if isinstance(taken.get("num_replicas"), int) and self.autoscaling_config and "autoscaling_config" not in given:
            taken["autoscaling_config"] = None
        if taken.get("autoscaling_config") and isinstance(self.num_replicas, int) and "num_replicas" not in given:
            taken["num_replicas"] = None
        return dataclasses.replace(self, unused=unused, **taken)

    @property
    def workers(self) -> int:
        """How many replicas there are."""
        if isinstance(self.num_replicas, int):
            return self.num_replicas
        scaling = self.autoscaling_config
        return max(scaling.min_replicas, 1) if scaling is not None else 1

    @property
    def concurrency(self) -> int:
        """Calls that a replica runs at a time, as Ray counts them."""
        return self.max_ongoing_requests or ONGOING_DEFAULT

    @property
    def actor(self) -> Mapping[str, Any]:
        """What a replica needs of its machine."""
        return self.ray_actor_options or {}

    def remarks(self, name: str) -> list[str]:
        """What was asked for and is not done."""
        found = [f"{name}: {option} has no effect in Jitney" for option in self.unused]
        if self.autoscaling_config is not None or self.num_replicas == "auto":
            what = "autoscaling_config" if self.autoscaling_config is not None else 'num_replicas="auto"'
            found.append(
                f"{name}: {what}: {self.workers} workers, its minimum, are started, and stay; "
                "docs/operations/capacity.md says how to scale from outside"
            )
        if self.concurrency > CONCURRENCY_MAX:
            found.append(f"{name}: max_ongoing_requests={self.max_ongoing_requests} counts as {CONCURRENCY_MAX}")
        environment = self.actor.get("runtime_env") or {}
        found += [
            f"{name}: runtime_env: {key} has no effect in Jitney; install it where the workers' Python finds it"
            for key in environment
            if key != "env_vars"
        ]
        return found


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
