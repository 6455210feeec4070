"""An application of Ray Serve as one of ours: every deployment becomes a definition, and a part.

A deployment's class gets a class of its own below `Replica`, whose endpoints are the methods. The root has another for
HTTP. `bind`ed applications among the arguments become parts, in whose place the constructor gets handles.

A call by handle brings positions and names; what a method cannot be given by name (`*args`, parameters before a slash)
gets names here. Type hints are not enforced, as in Ray, except where they make an object whole again that travels as
its fields.
"""

from __future__ import annotations

import enum
import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any, get_type_hints

from jitney.call.request import Request
from jitney.compat.serve.batching import Batched
from jitney.compat.serve.deployment import DEFAULT_APP, QUEUE_MAX, Application, Deployment, model_name
from jitney.compat.serve.handle import CALL, CALL_ENDPOINT, DeploymentHandle
from jitney.compat.serve.objects import MARK, plain_classes, unpacked
from jitney.compat.serve.replica import Replica, is_generator
from jitney.compat.serve.replica_http import HttpReplica
from jitney.definition.application import Bound, Dependency
from jitney.definition.decorators import NOTE, Note
from jitney.definition.multiplexed import MULTIPLEXED, models_kept
from jitney.definition.options import CONCURRENCY_MAX, Options

REQUEST = "jitney_request"
MORE = 16
"""Arguments that `*args` may have."""
LEFT_OUT = object()
NOT_CALLED = ("reconfigure", "check_health")


def methods(target: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """What can be called of a deployment: its public methods and `__call__`."""
    if not inspect.isclass(target):
        yield CALL, target
        return
    names = dict.fromkeys(name for one in reversed(target.__mro__[:-1]) for name in vars(one))
    for name in names:
        found = getattr(target, name, None)
        if inspect.isroutine(found) and (name == CALL or not name.startswith("_")) and name not in NOT_CALLED:
            yield name, found


def method_endpoint(name: str, function: Callable[..., Any], concurrency: int) -> Any:
    """A method as an endpoint: the same parameters, and the request of the call."""
    parameters = list(inspect.signature(function).parameters.values())
    takes_self = bool(parameters) and parameters[0].name == "self"
    own = parameters[takes_self:]
    classes = plain_classes(function)
    endpoint: Any
    if is_generator(function):

        async def endpoint(self: Replica, **given: Any) -> Any:
            request, args, kwargs = _call_of(own, given, classes)
            async for piece in self.stream(name, request, args, kwargs):
                yield piece

    else:

        async def endpoint(self: Replica, **given: Any) -> Any:
            request, args, kwargs = _call_of(own, given, classes)
            return await self.call(name, request, args, kwargs)

    shown = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *_shown(own)]
    endpoint.__signature__ = inspect.Signature(shown)
    endpoint.__annotations__ = {**_hints(function), REQUEST: Request}
    endpoint.__name__ = endpoint.__qualname__ = name
    endpoint.__doc__ = inspect.getdoc(function)
    options = Options(name=CALL_ENDPOINT if name == CALL else name, concurrency=concurrency)
    setattr(endpoint, NOTE, Note(options, "endpoint"))
    return endpoint


def _shown(own: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Parameters that can be given by name: `*args` as so many that may be left out."""
    found = []
    for one in own:
        if one.kind is one.VAR_POSITIONAL:
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            found += [inspect.Parameter(f"{one.name}_{at}", kind, default=LEFT_OUT) for at in range(MORE)]
        elif one.kind is one.POSITIONAL_ONLY:
            found.append(one.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD))
        else:
            found.append(one)
    request = inspect.Parameter(REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    at = next((at for at, one in enumerate(found) if one.kind is one.VAR_KEYWORD), len(found))
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in found]
    return _ordered([*bare[:at], request, *bare[at:]])


def _ordered(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """A parameter without a default cannot come behind one with: Python's own rule."""
    seen_default, found = False, []
    for one in parameters:
        if one.kind is one.POSITIONAL_OR_KEYWORD:
            seen_default = seen_default or one.default is not one.empty
            one = one.replace(default=None) if seen_default and one.default is one.empty else one
        found.append(one)
    return found


def _call_of(
    own: list[inspect.Parameter], given: dict[str, Any], classes: dict[str, type]
) -> tuple[Request, list[Any], dict[str, Any]]:
    """The arguments of the method itself."""
    request = given.pop(REQUEST)
    for name, value in given.items():
        if name in classes or (type(value) is dict and MARK in value):
            given[name] = unpacked(name, value, classes.get(name))
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = True
    for one in own:
        if one.kind is one.VAR_POSITIONAL:
            more = [given.pop(f"{one.name}_{at}", LEFT_OUT) for at in range(MORE)]
            args += [value for value in more if value is not LEFT_OUT]
        elif one.kind is one.VAR_KEYWORD:
            continue
        elif one.name not in given:
            by_position = False
        elif by_position and one.kind is not one.KEYWORD_ONLY:
            args.append(given.pop(one.name))
        else:
            kwargs[one.name] = given.pop(one.name)
    return request, args, {**kwargs, **given}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Hints that make an object whole again which travels as its fields; others are not enforced, as in Ray."""
    try:
        hints = get_type_hints(function)
    except Exception:  # A name that cannot be found counts for nothing.
        return {}
    return {name: hint for name, hint in hints.items() if name != "return" and _is_made_of_fields(hint)}


def _is_made_of_fields(hint: Any) -> bool:
    return isinstance(hint, type) and (
        is_dataclass(hint) or issubclass(hint, enum.Enum) or hasattr(hint, "model_validate")
    )


def http_endpoint(concurrency: int) -> Any:
    """The endpoint of everything that comes over HTTP."""

    async def http(self: Any, request: Any) -> Any:
        """Requests over HTTP, below the route prefix."""
        return await self.answer(request)

    setattr(http, NOTE, Note(Options(raw=True, concurrency=concurrency), "endpoint"))
    return http


logger = logging.getLogger("jitney.compat.serve")

PLACED_BY = ("num_cpus", "num_gpus", "resources")
"""What places a worker where Ray does it: `jitney serve --ray`."""
HEALTH = {"/-/healthz": "ready"}
"""Where probes of Ray Serve ask."""
NO_LIMIT_S = 24 * 3600
"""Ray ends no call that takes long."""


@dataclass(frozen=True)
class Routed:
    """An application with its name and where it answers over HTTP; None for nowhere."""

    application: Application
    name: str = DEFAULT_APP
    route_prefix: str | None = "/"
    state: str | None = None
    """The file in which the program that serves it says what else it serves."""

    def __jitney_application__(self) -> Bound:
        return _Builder(self).build(self.application, is_root=True)


def built(application: Application) -> Bound:
    """What `jitney serve app.py:app` serves; the same for the same application."""
    known: Bound | None = vars(application).get("_bound")
    if known is None:
        prefix = application.deployment.deployment_options.route_prefix or "/"
        known = vars(application)["_bound"] = Routed(application, route_prefix=prefix).__jitney_application__()
    return known


class _Builder:
    """Makes the parts of one application, each once."""

    def __init__(self, routed: Routed) -> None:
        self._routed = routed
        self._made: dict[int, Bound] = {}

    def build(self, application: Application, is_root: bool = False) -> Bound:
        """The part of an application, with those among its arguments."""
        made = self._made.get(id(application))
        if made is None:
            deployment, app_name = application.deployment, self._routed.name
            name = deployment.name
            made = self._made[id(application)] = Bound(
                replica_class(deployment, self._routed, is_root),
                tuple(map(self._argument, application.args)),
                {key: self._argument(value) for key, value in application.kwargs.items()},
                name=model_name(app_name, name),
                options=model_options(deployment, self._routed if is_root else None),
                view=lambda handle: DeploymentHandle(name, app_name, lambda: handle),
                numbered=True,
            )
        return made

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Application):
            return self.build(value)
        if isinstance(value, DeploymentHandle):
            return OtherDeployment(value)
        if isinstance(value, dict):
            return {key: self._argument(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(map(self._argument, value))
        return value


class OtherDeployment(Dependency):
    """A handle of another application among the arguments."""

    def __init__(self, handle: DeploymentHandle) -> None:
        super().__init__(model_name(handle.app_name, handle.deployment_name))
        self._handle = handle

    def view(self, handle: Any) -> Any:
        """The same handle, over a connection of the worker."""
        name, app_name = self._handle.deployment_name, self._handle.app_name
        return DeploymentHandle(name, app_name, lambda: handle, self._handle._handle_options)


def model_options(deployment: Deployment, routed: Routed | None) -> Options:
    """A deployment's options as those of a model; `routed` is the application of a root."""
    prefix = None if routed is None else routed.route_prefix
    options = deployment.deployment_options
    gpus = options.actor.get("num_gpus") or 0
    queue = options.max_queued_requests
    found: dict[str, Any] = {
        "workers": options.workers,
        "max_workers": options.workers_max if options.workers_max > options.workers else None,
        "queue": min(queue, QUEUE_MAX) if queue > 0 else QUEUE_MAX,
        "device": "gpu" if gpus else "cpu",
        "response_timeout_s": NO_LIMIT_S,
        "startup_timeout_s": NO_LIMIT_S,
        "mount": prefix,
        "ray": {name: options.actor[name] for name in PLACED_BY if name in options.actor} or None,
        "health_routes": HEALTH if routed is not None and prefix and routed.name == DEFAULT_APP else None,
    }
    return Options(**{name: value for name, value in found.items() if value is not None and hasattr(Options, name)})


def replica_class(deployment: Deployment, routed: Routed, is_root: bool) -> type[Replica]:
    """The class of a deployment's replicas."""
    concurrency = min(_concurrency(deployment), CONCURRENCY_MAX)
    body: dict[str, Any] = {
        "deployment": deployment,
        "app_name": routed.name,
        "route_prefix": routed.route_prefix or "",
        "routed": routed,
        "__doc__": inspect.getdoc(deployment.func_or_class) or "",
        NOTE: Note(Options(), "model"),
        MULTIPLEXED: models_kept(deployment.func_or_class),
    }
    for name, function in methods(deployment.func_or_class):
        body[f"endpoint_{name.strip('_')}"] = method_endpoint(name, function, concurrency)
    if is_root and routed.route_prefix is not None:
        body["http"] = http_endpoint(concurrency)
    base = HttpReplica if is_root else Replica
    return type(deployment.name, (base,), body)


def remarks(deployment: Deployment) -> list[str]:
    """What was asked for and is not done, and limits that make each other useless."""
    options = deployment.deployment_options
    found = options.remarks(deployment.name)
    wanted = _batched_at_a_time(deployment)
    if options.max_ongoing_requests is not None and wanted > options.max_ongoing_requests:
        found.append(
            f"{deployment.name}: batches of @serve.batch can never be full, since max_ongoing_requests="
            f"{options.max_ongoing_requests} calls run at a time and {wanted} would be needed"
        )
    return found


def _concurrency(deployment: Deployment) -> int:
    """Calls at a time: as many as were said, else Ray's five, or enough to fill the batches."""
    options = deployment.deployment_options
    if options.max_ongoing_requests is not None:
        return options.max_ongoing_requests
    return max(options.concurrency, _batched_at_a_time(deployment))


def _batched_at_a_time(deployment: Deployment) -> int:
    found = (getattr(function, "serve_batch", None) for _, function in _all_functions(deployment.func_or_class))
    settings = [one.settings for one in found if isinstance(one, Batched)]
    return max((one.max_batch_size * one.max_concurrent_batches for one in settings), default=0)


def _all_functions(target: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isclass(target):
        for one in reversed(target.__mro__[:-1]):
            yield from vars(one).items()


Application.builder = staticmethod(built)
