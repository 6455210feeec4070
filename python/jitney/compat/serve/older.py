"""The API of Ray Serve up to 1.1: backends, endpoints with traffic, and handles whose calls return references."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from jitney.compat.references import ObjectRef
from jitney.compat.serve.backend import Backend, BackendConfig, EndpointRoute
from jitney.compat.serve.exceptions import RayServeException
from jitney.compat.serve.running import at_shutdown, running, shutdown, start_server
from jitney.handle.handle import running_loop

_backends: dict[str, Backend] = {}
_endpoints: dict[str, RoutedEndpoint] = {}


@dataclasses.dataclass
class RoutedEndpoint:
    """A route with the shares of its backends."""

    name: str
    route: str | None
    methods: tuple[str, ...]
    traffic: dict[str, float]


class RayServeHandle:
    """An endpoint; `remote(name=value)` returns a reference at once, for `ray.get`."""

    def __init__(self, endpoint: str, method_name: str = "") -> None:
        self.endpoint_name = endpoint
        self._method_name = method_name

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef:
        """Calls one of the endpoint's backends."""
        shared = _shared_model(_endpoint(self.endpoint_name).name)
        handle = running().session.model(shared).options(method_name="call")
        return ObjectRef(_in_thread(handle, {"method": self._method_name, "args": list(args), "kwargs": kwargs}))

    def options(self, method_name: str = "", **others: Any) -> RayServeHandle:
        """The same endpoint, with calls of another method."""
        return RayServeHandle(self.endpoint_name, method_name or self._method_name)

    def __repr__(self) -> str:
        return f"RayServeHandle(endpoint={self.endpoint_name!r})"


def _in_thread(handle: Any, item: dict[str, Any]) -> Any:
    """The future of a call, which any thread may wait for, whether or not this one runs an event loop."""
    if running_loop() is None:
        return handle.remote(item)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(handle.remote, item).result()


def init(*args: Any, **options: Any) -> None:
    """The older name of `serve.start`."""
    known = ("http_host", "http_port", "http_options")
    start_server(**{name: value for name, value in options.items() if name in known})


def create_backend(
    backend_tag: str,
    func_or_class: Any,
    *actor_init_args: Any,
    ray_actor_options: Mapping[str, Any] | None = None,
    config: Any = None,
    env: Any = None,
) -> None:
    """Starts a backend: a function, or a class made with these arguments."""
    if backend_tag in _backends:
        raise ValueError(f"there is a backend {backend_tag!r} already")
    _deploy(Backend(_model_name(backend_tag), func_or_class, actor_init_args, _config(config)), backend_tag)


def create_endpoint(endpoint_name: str, *, backend: str, route: str | None = None, methods: Any = ("GET",)) -> None:
    """Answers a route with a backend; without a route only handles reach it."""
    if endpoint_name in _endpoints:
        raise ValueError(f"there is an endpoint {endpoint_name!r} already")
    allowed = tuple(str(one).upper() for one in methods)
    endpoint = RoutedEndpoint(endpoint_name, route, allowed, _checked({backend: 1.0}))
    shared, model = _shared_model(endpoint_name), _route_model(endpoint_name)
    running().deploy(dataclasses.replace(_backends[backend], model=shared, idle=True), shared, None)
    _share(endpoint)
    if route is not None:
        running().deploy(EndpointRoute(model, route, allowed, shared), model, route)


def set_traffic(endpoint_name: str, traffic_policy_dictionary: Mapping[str, float]) -> None:
    """Sends an endpoint's requests to these backends, by their shares."""
    _share(dataclasses.replace(_endpoint(endpoint_name), traffic=_checked(traffic_policy_dictionary)))


def get_handle(endpoint_name: str, missing_ok: bool = False, **options: Any) -> RayServeHandle:
    """The handle of an endpoint."""
    if not missing_ok:
        _endpoint(endpoint_name)
    return RayServeHandle(endpoint_name)


def update_backend_config(backend_tag: str, config_options: Any) -> None:
    """Runs a backend with other settings; those that are not named stay."""
    old = _backend(backend_tag)
    given = config_options if isinstance(config_options, dict) else dataclasses.asdict(config_options)
    _deploy(dataclasses.replace(old, config=_config(given, old.config)), backend_tag)


def get_backend_config(backend_tag: str) -> BackendConfig:
    """How a backend runs."""
    return _backend(backend_tag).config


def delete_backend(backend_tag: str, force: bool = False) -> None:
    """Ends a backend that no endpoint uses."""
    backend = _backend(backend_tag)
    used = [one.name for one in _endpoints.values() if backend_tag in one.traffic]
    if used:
        raise ValueError(f"{backend_tag!r} is used by the endpoint {used[0]!r}; set its traffic first")
    running().delete(backend.model)
    del _backends[backend_tag]


def delete_endpoint(endpoint_name: str) -> None:
    """Ends an endpoint; its backends stay."""
    endpoint = _endpoint(endpoint_name)
    if endpoint.route is not None:
        running().delete(_route_model(endpoint_name))
    running().delete(_shared_model(endpoint_name))
    del _endpoints[endpoint_name]


def list_backends() -> dict[str, dict[str, Any]]:
    """All backends with their settings."""
    return {tag: dataclasses.asdict(one.config) for tag, one in _backends.items()}


def list_endpoints() -> dict[str, dict[str, Any]]:
    """All endpoints with their routes and traffic."""
    return {
        name: {"route": one.route, "methods": list(one.methods), "traffic": dict(one.traffic), "shadows": {}}
        for name, one in _endpoints.items()
    }


def forget_all() -> None:
    """The server has ended."""
    _backends.clear()
    _endpoints.clear()


def _deploy(backend: Backend, tag: str) -> None:
    running().deploy(backend, backend.model, None)
    _backends[tag] = backend


def _share(endpoint: RoutedEndpoint) -> None:
    shares = {_backends[tag].model: weight for tag, weight in endpoint.traffic.items()}
    running().share(_shared_model(endpoint.name), shares)
    _endpoints[endpoint.name] = endpoint


def _checked(traffic: Mapping[str, float]) -> dict[str, float]:
    for tag, weight in traffic.items():
        _backend(tag)
        if weight < 0:
            raise ValueError(f"the share of {tag!r} must be 0 or more, not {weight!r}")
    if abs(sum(traffic.values()) - 1) > 1e-6:
        raise ValueError(f"the shares must add up to 1, not to {sum(traffic.values())}")
    return {tag: float(weight) for tag, weight in traffic.items()}


def _config(given: Any, base: BackendConfig | None = None) -> BackendConfig:
    if isinstance(given, BackendConfig):
        return given
    fields = {one.name for one in dataclasses.fields(BackendConfig)} - {"internal"}
    unknown = sorted((given or {}).keys() - fields - {"internal"})
    if unknown:
        raise TypeError(f"a backend has no setting {unknown[0]!r}; it has {', '.join(sorted(fields))}")
    return dataclasses.replace(base or BackendConfig(), **(given or {}))


def _backend(tag: str) -> Backend:
    if tag not in _backends:
        raise RayServeException(f"there is no backend {tag!r}; create it with serve.create_backend first")
    return _backends[tag]


def _endpoint(name: str) -> RoutedEndpoint:
    if name not in _endpoints:
        raise RayServeException(f"there is no endpoint {name!r}; create it with serve.create_endpoint first")
    return _endpoints[name]


def _model_name(tag: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", tag) or "backend"


def _route_model(endpoint: str) -> str:
    return f"{_model_name(endpoint)}.route"


def _shared_model(endpoint: str) -> str:
    """The name whose requests the backends of an endpoint share."""
    return f"{_model_name(endpoint)}.shared"


class ServeClient:
    """What `serve.start` returned in Ray 1.0 to 1.2: the same functions as methods."""

    create_backend = staticmethod(create_backend)
    create_endpoint = staticmethod(create_endpoint)
    delete_backend = staticmethod(delete_backend)
    delete_endpoint = staticmethod(delete_endpoint)
    get_backend_config = staticmethod(get_backend_config)
    get_handle = staticmethod(get_handle)
    list_backends = staticmethod(list_backends)
    list_endpoints = staticmethod(list_endpoints)
    set_traffic = staticmethod(set_traffic)
    shutdown = staticmethod(shutdown)
    update_backend_config = staticmethod(update_backend_config)


def start(*args: Any, **options: Any) -> ServeClient:
    """Starts the server, if it does not run already. It ends with this program, and with `serve.shutdown`.

    `http_options` has the host and the port, 8000 by default. Programs for Ray 1.0 use the client that it returns.
    """
    start_server(*args, **options)
    return ServeClient()


at_shutdown(forget_all)
