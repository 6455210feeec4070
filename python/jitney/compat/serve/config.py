"""Configuration objects of Ray Serve, under their names: what this layer uses of them is said in the table of
docs/coming-from/ray-serve.md, and what it does not use is kept and warned about.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jitney.compat.absent import absent_names

PORT = 8000
"""Where Ray Serve listens."""


@dataclass
class HTTPOptions:
    """Where the server listens."""

    host: str | None = "127.0.0.1"
    port: int = PORT
    location: Any = None
    root_path: str = ""
    root_url: str = ""
    num_cpus: int = 0
    request_timeout_s: float | None = None
    keep_alive_timeout_s: float | None = None
    middlewares: list[Any] = dataclasses.field(default_factory=list)
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None


@dataclass
class gRPCOptions:
    """Accepted for its name; Jitney's own gRPC protocols are always there."""

    port: int = 9000
    grpc_servicer_functions: list[str] = dataclasses.field(default_factory=list)


@dataclass
class AutoscalingConfig:
    """How many replicas a deployment has: their number follows the load between the two bounds. When it changes is
    decided by what Jitney measures, and the other fields have no effect, which a warning says of those that are set."""

    min_replicas: int = 1
    initial_replicas: int | None = None
    max_replicas: int = 1
    target_ongoing_requests: float = 2
    metrics_interval_s: float = 10.0
    look_back_period_s: float = 30.0
    smoothing_factor: float = 1.0
    upscale_smoothing_factor: float | None = None
    downscale_smoothing_factor: float | None = None
    upscaling_factor: float | None = None
    downscaling_factor: float | None = None
    downscale_delay_s: float = 600.0
    downscale_to_zero_delay_s: float | None = None
    upscale_delay_s: float = 30.0
    aggregation_function: Any = "mean"
    policy: Any = None

    def __post_init__(self) -> None:
        least, most, first = self.min_replicas, self.max_replicas, self.initial_replicas
        if least < 0 or most < max(least, 1):
            raise ValueError(
                f"min_replicas ({least}) must be at least 0, and max_replicas ({most}) at least 1 and min_replicas"
            )
        if first is not None and not least <= first <= most:
            raise ValueError(f"initial_replicas ({first}) must be between min_replicas and max_replicas")

    @property
    def without_effect(self) -> list[str]:
        """Fields that say something else than they do by default, and change nothing here."""
        fields = [one for one in dataclasses.fields(self) if one.name not in ("min_replicas", "max_replicas")]
        return [one.name for one in fields if getattr(self, one.name) != one.default]


class ProxyLocation(str, Enum):
    """Where proxies run in a Ray cluster; here the server is the proxy."""

    Disabled = "Disabled"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"


def made_of(kind: type, given: Any) -> Any:
    """A configuration object of this kind, from itself or from a dictionary of its fields."""
    if given is None or isinstance(given, kind):
        return given
    if not isinstance(given, dict):
        raise TypeError(f"expected {kind.__name__} or a dictionary, not {given!r}")
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}; it has {', '.join(sorted(known))}")
    return kind(**given)


class KeptOptions:
    """Options of Ray that have no effect here. They are kept as they were given, and what is given them warns."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.args = args
        vars(self).update(options)


class AutoscalingPolicy(KeptOptions):
    """What would choose the number of replicas; Jitney does it by what it measures."""


class AutoscalingContext(KeptOptions):
    """What such a policy would be told."""


class BackpressureConfig(KeptOptions):
    """The answer of a full queue; Jitney's is 503 with Retry-After."""


class DeploymentActorConfig(KeptOptions):
    """An actor beside the replicas; make it a deployment, and pass its handle by .bind."""


class GangSchedulingConfig(KeptOptions):
    """Replicas that are placed together; workers are placed one by one."""


class RequestRouterConfig(KeptOptions):
    """How a replica is chosen; all replicas share one queue, and the first free one takes the next request."""


class GangPlacementStrategy(str, Enum):
    """Where the replicas of a gang are placed."""

    PACK = "PACK"
    SPREAD = "SPREAD"


class GangRuntimeFailurePolicy(str, Enum):
    """What happens to a gang of which a replica fails."""

    RESTART_GANG = "RESTART_GANG"
    RESTART_REPLICA = "RESTART_REPLICA"


class AggregationFunction(str, Enum):
    """How measurements would be joined."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


__getattr__ = absent_names("serve.config", {"ControllerOptions": "there is no controller to configure"})
