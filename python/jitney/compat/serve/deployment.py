"""`@serve.deployment`: a class or function that runs in replicas, and `bind`, which makes an application of it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from jitney.compat.serve.deployment_options import DeploymentOptions


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
