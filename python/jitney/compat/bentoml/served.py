"""The class that the server runs for a service or runner: made of its methods, with our decorators' notes on them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jitney.definition.application import Dependency
from jitney.definition.decorators import NOTE, Note
from jitney.definition.options import Options

HEALTH = {"/livez": "live", "/healthz": "live", "/readyz": "ready"}
"""Where BentoML's probes ask."""


class ServedObject:
    """What all made classes have: the life of the user's object, and threads for its methods."""

    threads = 1

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self.made = self.make()

    def make(self) -> Any:
        """The user's object."""
        raise NotImplementedError

    def pool(self) -> ThreadPoolExecutor:
        """Threads for methods that are not `async`."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="bentoml")
        return self._pool

    async def in_pool(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function in one of its threads, with what is known of the current call."""
        here = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self.pool(), here.run, function, *args)

    def close_pool(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)


def metric_labels(method: str, runner: str, service: str) -> dict[str, str]:
    """The labels of BentoML's metrics; a service that is not in a bundle has no version."""
    return {
        "method_name": method, "runner_name": runner, "service_name": service, "service_version": "not available",
        "worker_index": "1",
    }  # fmt: skip


def mark(function: Callable[..., Any], *, batched: bool, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Puts our decorator's note on an endpoint's function."""
    setattr(function, NOTE, Note(make(options), "batch" if batched else "endpoint"))
    return function


def make_class(
    name: str,
    base: type[ServedObject],
    members: Mapping[str, Any],
    dependencies: Mapping[str, Dependency],
    options: Mapping[str, Any],
) -> type[ServedObject]:
    """The class."""
    made = type(name, (base,), {**members, **dependencies})
    setattr(made, NOTE, Note(make(options), "model"))
    return made


def make(options: Mapping[str, Any]) -> Options:
    """Options, without those that are not set."""
    return Options(**{key: value for key, value in options.items() if value is not None})
