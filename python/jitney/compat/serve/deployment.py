"""`@serve.deployment`: a class or function that runs in replicas, and `bind`, which makes an application of it. Options
are checked where they are written down.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jitney.compat.serve.config import AutoscalingConfig, made_of
from jitney.definition.options import CONCURRENCY_MAX

logger = logging.getLogger("jitney.compat.serve")

DEFAULT_APP = "default"
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
        """How many replicas there are at least."""
        if isinstance(self.num_replicas, int):
            return self.num_replicas
        scaling = self.autoscaling_config
        return scaling.min_replicas if scaling is not None else 1

    @property
    def workers_max(self) -> int:
        """How many there are at most; between the two their number follows the load."""
        if self.autoscaling_config is not None:
            return int(self.autoscaling_config.max_replicas)
        return (os.cpu_count() or 1) if self.num_replicas == "auto" else self.workers

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
        if self.autoscaling_config is not None:
            options = self.autoscaling_config.without_effect
            found += [f"{name}: autoscaling_config: {option} has no effect in Jitney" for option in options]
        if self.concurrency > CONCURRENCY_MAX:
            found.append(f"{name}: max_ongoing_requests={self.max_ongoing_requests} counts as {CONCURRENCY_MAX}")
        environment = self.actor.get("runtime_env") or {}
        found += [
            f"{name}: runtime_env: {key} has no effect in Jitney; install it where the workers' Python finds it"
            for key in environment
            if key != "env_vars"
        ]
        return found


def model_name(app_name: str, deployment: str) -> str:
    """The name of a deployment among the models of the server."""
    return deployment if app_name == DEFAULT_APP else f"{app_name}.{deployment}"


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class Deployment:
    """A class or function with the options of its replicas."""

    def __init__(self, target: Any, options: DeploymentOptions) -> None:
        self.func_or_class = target
        self.deployment_options = options

    @property
    def name(self) -> str:
        """Its name in an application."""
        return self.deployment_options.name or str(self.func_or_class.__name__)

    @property
    def num_replicas(self) -> int:
        """How many replicas there are."""
        return self.deployment_options.workers

    @property
    def user_config(self) -> Any:
        """What `reconfigure` gets."""
        return self.deployment_options.user_config

    @property
    def max_ongoing_requests(self) -> int:
        """Calls that one replica runs at a time."""
        return self.deployment_options.concurrency

    @property
    def max_queued_requests(self) -> int:
        """Calls that may wait; -1 for as many as come."""
        return self.deployment_options.max_queued_requests

    @property
    def ray_actor_options(self) -> dict[str, Any]:
        """What a replica needs of its machine."""
        return dict(self.deployment_options.actor)

    def options(self, func_or_class: Any = None, **options: Any) -> Deployment:
        """The same deployment with other options."""
        return Deployment(func_or_class or self.func_or_class, self.deployment_options.but(options))

    def bind(self, *args: Any, **kwargs: Any) -> Application:
        """An application of it: its constructor gets these arguments, and handles for applications among them."""
        target = self.func_or_class
        if not inspect.isclass(target) and (args or kwargs):
            raise TypeError(f"{self.name} is a function: bind() takes no arguments")
        if inspect.isclass(target):
            try:
                inspect.signature(target).bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.name} cannot be made with these arguments: {error}") from None
            except ValueError:  # No readable signature; the constructor will tell.
                pass
        return Application(self, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"deployments are not called: use {self.name}.bind(...) and serve.run, or "
            f"{self.name}.func_or_class for the plain object"
        )

    def __repr__(self) -> str:
        return f"Deployment(name={self.name})"

    def __reduce__(self) -> Any:
        """By name where another process can import it, since its module has the deployment in the class's place."""
        target = self.func_or_class
        module, path = target.__module__, target.__qualname__
        known = _imported(module, path) if module != "__main__" else None
        if known is not None and known.func_or_class is target:
            return _by_name, (module, path, self.deployment_options)
        return Deployment, (target, self.deployment_options)


def _imported(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, Deployment) else None


def _by_name(module: str, path: str, options: DeploymentOptions) -> Deployment:
    importlib.import_module(module)
    found = _imported(module, path)
    if found is None:
        raise ImportError(f"{module} has no deployment {path}")
    return Deployment(found.func_or_class, options)


class Application:
    """A deployment with its constructor's arguments; the root of those among them."""

    builder: ClassVar[Callable[[Any], Any] | None] = None
    """What makes a definition of ours of it."""

    def __init__(self, deployment: Deployment, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.deployment = deployment
        self.args = args
        self.kwargs = kwargs

    def __jitney_application__(self) -> Any:
        """What `jitney serve app.py:app` serves."""
        assert Application.builder is not None
        return Application.builder(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"deployment": self.deployment, "args": self.args, "kwargs": self.kwargs}

    def __repr__(self) -> str:
        return f"Application({self.deployment.name})"


def deployment(_func_or_class: Any = None, **options: Any) -> Any:
    """Makes a deployment of a class or function: `@serve.deployment` or `@serve.deployment(num_replicas=2)`."""
    made = DeploymentOptions().but(options)

    def decorate(target: Callable[..., Any]) -> Deployment:
        if not inspect.isclass(target) and not inspect.isfunction(target):
            raise TypeError(f"@serve.deployment decorates classes and functions, not {target!r}")
        return Deployment(target, made)

    return decorate if _func_or_class is None else decorate(_func_or_class)
