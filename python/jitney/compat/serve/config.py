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
    """How many replicas a deployment has. Jitney starts the least number; more come from outside."""

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


_ABSENT = {
    "AggregationFunction": "workers are not scaled by themselves",
    "AutoscalingPolicy": "workers are not scaled by themselves",
    "BackpressureConfig": "a full queue answers 503 with Retry-After",
    "ControllerOptions": "there is no controller to configure",
    "DeploymentActorConfig": "make it a deployment, and pass its handle by .bind",
    "GangSchedulingConfig": "workers are placed one by one",
    "RequestRouterConfig": "all replicas share one queue, and the first free one takes the next request",
}

__getattr__ = absent_names("serve.config", _ABSENT)
