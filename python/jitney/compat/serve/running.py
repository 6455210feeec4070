"""`serve.run` and the functions beside it: what the driver program does with its server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jitney.compat.serve import handle as handles
from jitney.compat.serve.config import HTTPOptions, made_of
from jitney.compat.serve.context import current_replica
from jitney.compat.serve.deployment import DEFAULT_APP, Application, Deployment, logger
from jitney.compat.serve.exceptions import NotSupported, RayServeException
from jitney.compat.serve.handle import DeploymentHandle
from jitney.compat.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    ServeStatus,
)
from jitney.compat.serve.server import SeenServer, Server, routed
from jitney.machine.process import runs_this_package

_server: Server | None = None
_lock = threading.Lock()
_at_shutdown: list[Callable[[], None]] = []
UNSET: Any = object()


def start_server(
    detached: bool = False,
    proxy_location: Any = None,
    http_options: Any = None,
    http_host: str | None = None,
    http_port: int | None = None,
    **others: Any,
) -> None:
    """Starts the server, if it does not run already."""
    options = made_of(HTTPOptions, http_options) or HTTPOptions()
    options.host = http_host or options.host
    options.port = http_port if http_port is not None else options.port
    server(options)


def server(options: HTTPOptions | None = None) -> Server:
    """The server; starts it first if need be."""
    global _server
    _check_not_in_worker()
    with _lock:
        if _server is None:
            _server = Server(options or HTTPOptions())
            handles.find_with(_server.handle)
        return _server


def running() -> Server:
    """The server, which must run."""
    if _server is None:
        raise RayServeException("nothing is served here: call serve.run or serve.start first")
    return _server


def run(
    target: Any,
    *,
    blocking: bool = False,
    name: str = DEFAULT_APP,
    route_prefix: Any = UNSET,
    logging_config: Any = None,
    **private: Any,
) -> DeploymentHandle:
    """Serves an application and returns the handle of its root, once all its workers are loaded.

    A second one of the same name takes the place of the first without a gap. `blocking` waits until the program is
    interrupted.
    """
    if isinstance(target, Deployment):
        raise TypeError("serve.run takes an application: write serve.run(Deployment.bind(...))")
    if not isinstance(target, Application):
        raise TypeError(f"serve.run takes an application made by .bind(), not {target!r}")
    own = target.deployment.deployment_options.route_prefix
    prefix = (own or "/") if route_prefix is UNSET else route_prefix
    if logging_config is not None:
        logger.warning("serve.run: logging_config has no effect in Jitney; `jitney serve` has --log-level")
    deployed = server().deploy(routed(target, name, prefix, server().state), name, prefix)
    handle = running().handle(deployed.root, name)
    if blocking:
        _wait()
    return handle


def run_many(*args: Any, **kwargs: Any) -> Any:
    """Not here."""
    raise NotSupported("serve.run_many is not there in Jitney's layer: call serve.run for each application")


def delete(name: str, _blocking: bool = True) -> None:
    """Ends an application after what it has accepted is answered."""
    running().delete(name)


def shutdown() -> None:
    """Ends the server."""
    global _server
    with _lock:
        ended, _server = _server, None
        if ended is not None:
            handles.find_with(None)
            for forget in _at_shutdown:
                forget()
            ended.close()


def at_shutdown(forget: Callable[[], None]) -> None:
    """Calls this when the server ends."""
    _at_shutdown.append(forget)


async def shutdown_async() -> None:
    """The same, inside an event loop."""
    import asyncio

    await asyncio.get_running_loop().run_in_executor(None, shutdown)


def status() -> ServeStatus:
    """The state of all applications."""
    seen = _server or _seen()
    if seen is None:
        return ServeStatus()
    found = ServeStatus({"jitney": "HEALTHY"})
    for name, deployed in seen.applications.items():
        parts = {}
        for deployment, model in deployed.models.items():
            states = [one.get("status", "") for one in seen.workers(model, deployed.version)]
            ready = states.count("READY")
            is_well = bool(states) and ready == len(states)
            state = DeploymentStatus.HEALTHY if is_well else DeploymentStatus.UPDATING
            counts = {"RUNNING": ready, "STARTING": len(states) - ready}
            parts[deployment] = DeploymentStatusOverview(state, {key: one for key, one in counts.items() if one})
        well = all(one.status is DeploymentStatus.HEALTHY for one in parts.values())
        state_of_all = ApplicationStatus.RUNNING if well else ApplicationStatus.DEPLOYING
        found.applications[name] = ApplicationStatusOverview(state_of_all, "", deployed.since, parts)
    return found


def _seen() -> SeenServer | None:
    """The server as a replica sees it; None outside of replicas."""
    replica = current_replica()
    if replica is None:
        return None
    if replica.routed.state is None:
        raise NotSupported(
            "a deployment learns of other applications only from a program with serve.run; of `jitney serve` ask "
            "GET /models on the management port, and pass handles by .bind()"
        )
    return SeenServer(replica.routed.state)


def get_app_handle(name: str = DEFAULT_APP) -> DeploymentHandle:
    """The handle of an application's root."""
    replica = current_replica()
    if replica is not None and name == replica.app_name:
        return handles.named_handle(replica.routed.application.deployment.name, name)
    seen = _seen()
    if seen is not None:
        if name not in seen.applications:
            raise RayServeException(f"Application {name!r} does not exist.")
        return handles.named_handle(seen.applications[name].root, name)
    deployed = running().applications.get(name)
    if deployed is None:
        raise RayServeException(f"Application {name!r} does not exist.")
    return running().handle(deployed.root, name)


def get_deployment_handle(
    deployment_name: str, app_name: str | None = None, _check_exists: bool = True, **private: Any
) -> DeploymentHandle:
    """The handle of a deployment, by its name."""
    replica = current_replica()
    app = app_name or (replica.app_name if replica is not None else DEFAULT_APP)
    if replica is not None:
        return handles.named_handle(deployment_name, app)
    return running().handle(deployment_name, app)


def _check_not_in_worker() -> None:
    """Raises inside a worker: it imports the file of the application, and would start a server of its own."""
    if current_replica() is not None or runs_this_package():
        raise RuntimeError('put serve.run below `if __name__ == "__main__":`, since workers import this file')


def _wait() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        shutdown()
