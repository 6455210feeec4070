"""`@bentoml.service`: a class whose APIs are served. The server gets an application of it and of what it depends on;
BentoML's own clients read `/schema.json` before they call it.
"""

from __future__ import annotations

import functools
import inspect
import typing
import warnings
from collections.abc import Mapping
from typing import Any, cast

from jitney.compat.bentoml import configuration
from jitney.compat.bentoml.answering import EVENT_STREAM, is_image_type
from jitney.compat.bentoml.api import DEPLOYMENT, SHUTDOWN, STARTUP, ApiNote, api_note, hooks_of, run_hooks
from jitney.compat.bentoml.asgi import MOUNTS, ServiceApp, around
from jitney.compat.bentoml.calling import ApiCall
from jitney.compat.bentoml.context import set_current_service
from jitney.compat.bentoml.dependencies import ServiceDependency, ServiceProxy
from jitney.compat.bentoml.parameters import WireParam, WireShape, wire_shape
from jitney.compat.bentoml.served import HEALTH, ServedObject, make_class, mark, metric_labels
from jitney.compat.bentoml.validators import ContentType
from jitney.compat.routes import bound_to
from jitney.definition.application import Bound, Dependency
from jitney.definition.hints import LISTS, MISSING, STREAMS
from jitney.definition.signature import array_type
from jitney.http.asgi import AsgiExchange, AsgiLifespan, explained
from jitney.packing.schemas import schema_of

PATH = "GET /schema.json"
TENSORS = {"numpy": "numpy-array", "torch": "torch-tensor"}
FILES = {"Path": "binary", "bytes": "binary"}


def describe(
    name: str, apis: Mapping[str, ApiNote], shapes: Mapping[str, WireShape], streams: Mapping[str, bool]
) -> dict[str, Any]:
    """The document of a service."""
    attributes = sorted(apis, key=lambda one: apis[one].name)
    routes = [
        {
            "name": apis[one].name,
            "route": apis[one].route,
            "batchable": apis[one].batchable,
            "input": _input(shapes[one]),
            "output": _output(shapes[one], streams[one]),
            "is_task": apis[one].is_task,
        }
        for one in attributes
    ]
    paths = {apis[one].route: {"mounted": False} for one in attributes}
    return {"name": name, "type": "service", "routes": routes, "paths": paths}


def _input(shape: WireShape) -> dict[str, Any]:
    roots = [one for one in shape.params if one.by_place]
    if roots:
        return {**_schema(roots[0].told), "root_input": True}
    required = [one.name for one in shape.params if one.default is MISSING]
    schema: dict[str, Any] = {
        "properties": {one.name: _property(one) for one in shape.params},
        "title": "Input",
        "type": "object",
    }
    return {**schema, "required": required} if required else schema


def _property(param: WireParam) -> dict[str, Any]:
    schema = {**_schema(param.told), "title": param.name.replace("_", " ").title()}
    plain = isinstance(param.default, (str, int, float, bool, list, dict))
    return {**schema, "default": param.default} if plain else schema


def _output(shape: WireShape, streams: bool) -> dict[str, Any]:
    media = next((one.content_type for one in shape.output_notes if isinstance(one, ContentType)), None)
    if streams:
        inner = typing.get_args(shape.output) if typing.get_origin(shape.output) in STREAMS else ()
        return {**_schema(inner[0] if inner else str), "is_stream": True, "media_type": EVENT_STREAM.partition(";")[0]}
    schema = _schema(shape.output)
    return {**schema, "media_type": media} if media else schema


def _schema(hint: Any) -> dict[str, Any]:
    """The schema of a hint, with BentoML's own types for arrays, frames, files and images."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) in LISTS and args:
        return {"type": "array", "items": _schema(args[0])}
    kind = array_type(hint)
    if kind is not None:
        library = kind.__module__.partition(".")[0]
        if library == "pandas":
            return {"type": "dataframe", "orient": "records"}
        return {"type": "tensor", "format": TENSORS.get(library, library)}
    if is_image_type(hint):
        return {"type": "file", "format": "image", "pil": True}
    if getattr(hint, "__name__", "") in FILES:
        return {"type": "file", "format": FILES[hint.__name__]}
    return schema_of(hint)


SLOT = "bentoml_part_"
"""What the made class calls its parts, before the name of the attribute."""
WITHOUT_EFFECT = ("cmd", "envs", "extra_ports", "image", "service_class")
"""What belongs to bundles and the cloud."""
METRIC = "bentoml_service_adaptive_batch_size"
LIMIT = 255
"""The most calls that one worker has under way."""


class ClassService:
    """What the decorator makes of a class. Called, it makes an object of the class, for tests and programs."""

    def __init__(self, inner: type, config: Mapping[str, Any]) -> None:
        configuration.check_keys("@bentoml.service", config, configuration.SERVICE_KEYS)
        self.inner = inner
        self.name = str(config.get("name") or inner.__name__)
        self._given = {key: value for key, value in config.items() if key != "name"}
        functools.update_wrapper(self, inner, updated=())
        for key in (key for key in WITHOUT_EFFECT if config.get(key)):
            warnings.warn(f"@bentoml.service({key}=...) has no effect in jitney.compat", stacklevel=3)
        self.mounts: dict[str, Any] = dict(getattr(inner, MOUNTS, ()))
        """Web applications beside the APIs, by their paths."""
        self.middlewares: list[tuple[Any, dict[str, Any]]] = []

    def mount_asgi_app(self, app: Any, path: str = "/", name: str | None = None) -> None:
        """Mounts a web application beside the APIs."""
        self.mounts[path] = app

    def add_asgi_middleware(self, middleware_cls: Any, **options: Any) -> None:
        """Puts all requests of the service through a middleware."""
        self.middlewares.append((middleware_cls, options))

    def to_asgi(self, is_main: bool = True) -> Any:
        """The service as an ASGI application of this process, for tests. Services that it depends on run here, too."""
        return self._class(is_entry=True, local=True)().web()

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """What the decorator and the configuration file say."""
        return configuration.for_service(self.name, self._given)

    @functools.cached_property
    def apis(self) -> dict[str, ApiNote]:
        """Its APIs, by attribute."""
        names = {name: None for one in reversed(self.inner.__mro__) for name in vars(one)}
        noted = ((name, api_note(inspect.getattr_static(self.inner, name, None))) for name in names)
        return {name: note for name, note in noted if note is not None}

    @functools.cached_property
    def dependencies(self) -> dict[str, ServiceDependency]:
        """The services it depends on, by attribute."""
        names = {name: None for one in reversed(self.inner.__mro__) for name in vars(one)}
        found = ((name, inspect.getattr_static(self.inner, name, None)) for name in names)
        return {name: one for name, one in found if isinstance(one, ServiceDependency)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if "inner" not in self.__dict__:  # While it is unpickled.
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __jitney_application__(self) -> Bound:
        return self._entry

    def inner_part(self) -> Bound:
        """The same as a part of another service: without paths of its own at the root."""
        return self._part

    @functools.cached_property
    def _entry(self) -> Bound:
        return Bound(self._class(is_entry=True), name=self.name)

    @functools.cached_property
    def _part(self) -> Bound:
        shapes = self._shapes
        methods = {
            name: (note.name, getattr(self.inner, name), shapes[name].output) for name, note in self.apis.items()
        }
        return Bound(self._class(is_entry=False), name=self.name, view=lambda handle: ServiceProxy(handle, methods))

    @functools.cached_property
    def _shapes(self) -> dict[str, WireShape]:
        return {
            name: wire_shape(getattr(self.inner, name), note.batchable, input_spec=note.input_spec)
            for name, note in self.apis.items()
        }

    def _class(self, is_entry: bool, local: bool = False) -> type[ServedService]:
        """The class that a worker runs; `local` for one of this process, whose parts are objects of it, too. APIs that
        are behind middleware are no endpoints of the server."""
        config = self.config
        traffic = config.get("traffic") or {}
        threads = int(config.get("threads") or 1)
        calls = {
            name: ApiCall(self._shapes[name], getattr(self.inner, name), note.batchable)
            for name, note in self.apis.items()
        }
        side_by_side = threads > 1 or any(call.is_async for call in calls.values())
        behind = local or (is_entry and bool(self.middlewares))
        in_threads = threads if side_by_side or behind else 0
        if behind and not local and any(note.is_task for note in self.apis.values()):
            warnings.warn(f"{self.name} has middleware: its tasks answer calls, and are not kept", stacklevel=2)
        apis: dict[str, Any] = {name: self._endpoint(name, calls[name], in_threads, is_entry) for name in calls}
        if is_entry:
            apis["bentoml_schema"] = self._description({name: call.streams for name, call in calls.items()})
        own = {name: one for name, one in self.dependencies.items() if one.url is None and not local}
        slots = {f"{SLOT}{name}": name for name in own}
        parts = {slot: Dependency(own[name].service.inner_part()) for slot, name in slots.items()}
        mount = None
        members = {} if behind else apis
        if is_entry and (self.mounts or behind):
            mount = next(iter(self.mounts)) if len(self.mounts) == 1 and not behind else "/"
            members["http"] = mark(answer_http, batched=False, options={"raw": True, "concurrency": LIMIT})
        members.update(
            __doc__=self.inner.__doc__, threads=threads, inner=self.inner, slots=slots, mount=mount,
            apis=type("Apis", (), apis) if behind else None, mounts=self.mounts, middlewares=self.middlewares,
            __jitney_deployment__=staticmethod(self.deploy),
            __jitney_origin__=self.inner,
        )  # fmt: skip
        options = {
            **configuration.options_of(self.name, config),
            "queue": traffic.get("max_concurrency"),
            "health_routes": HEALTH if is_entry else None,
            "mount": mount,
        }
        made: Any = make_class(self.inner.__name__, ServedService, members, parts, options)
        return cast("type[ServedService]", made)

    def _description(self, streams: Mapping[str, bool]) -> Any:
        """An endpoint for BentoML's own clients, which ask what a service has before they call it."""
        document = describe(self.name, self.apis, self._shapes, streams)

        def bentoml_schema(self: Any) -> dict[str, Any]:
            return document

        return mark(bentoml_schema, batched=False, options={"route": PATH})

    def _endpoint(self, name: str, call: ApiCall, threads: int, is_entry: bool) -> Any:
        note = self.apis[name]
        batching = {} if not note.batchable else self._batching(note)
        prefix = str(self.config.get("path_prefix") or "").rstrip("/")
        options = {
            "name": note.name,
            "route": f"POST {prefix}{note.route}" if is_entry else None,
            "task_routes": note.is_task and is_entry,
            "concurrency": min(threads, LIMIT) if threads > 1 and not call.is_async else None,
            **batching,
        }
        function = call.function(lambda served: getattr(served.made, name), threaded=threads > 0)
        return mark(function, batched=note.batchable, options=options)

    def _batching(self, note: ApiNote) -> dict[str, Any]:
        told = configuration.batching_of(self.config)
        size = told.get("max_batch_size", note.max_batch_size)
        return {
            "max_batch_size": size if told.get("enabled", True) else 1,
            "max_latency_ms": told.get("max_latency_ms", note.max_latency_ms),
            "batch_dim": note.batch_dim,
            "metric_names": ((METRIC, metric_labels(note.name, self.name, self.name)),),
        }

    def deploy(self) -> None:
        """Runs the hooks of a deployment, once before any worker starts."""
        for name in hooks_of(self.inner, DEPLOYMENT):
            hook = inspect.getattr_static(self.inner, name)
            bare = getattr(hook, "__func__", hook)
            bare(*([self.inner] if isinstance(hook, classmethod) or inspect.signature(bare).parameters else []))


class ServedService(ServedObject):
    """The object that a worker runs for a service."""

    inner: type
    slots: Mapping[str, str]
    apis: type | None
    """Its APIs, if they are behind middleware."""
    mount: str | None
    mounts: Mapping[str, Any]
    middlewares: list[tuple[Any, dict[str, Any]]]

    def make(self) -> Any:
        """The user's object, which finds its parts in its attributes while it is made."""
        owner: Any = self.inner
        made = owner.__new__(owner)
        vars(made).update({attribute: getattr(self, slot) for slot, attribute in self.slots.items()})
        set_current_service(made)
        made.__init__()
        return made

    def setup(self) -> Any:
        """Runs the hooks of the start."""
        done = run_hooks([getattr(self.made, name) for name in hooks_of(self.inner, STARTUP)])
        return done if self.mount is None else self._begin_web(done)

    def teardown(self) -> Any:
        """Runs the hooks of the end."""
        self.close_pool()
        done = run_hooks([getattr(self.made, name) for name in hooks_of(self.inner, SHUTDOWN)])
        return done if self.mount is None else self._end_web(done)

    async def _begin_web(self, before: Any) -> None:
        if inspect.isawaitable(before):
            await before
        self.app = self.web()
        self.lifespans = [AsgiLifespan(one) for one in self.mounts.values()]
        for one in self.lifespans:
            await one.startup()

    async def _end_web(self, before: Any) -> None:
        for one in self.lifespans:
            await one.shutdown()
        if inspect.isawaitable(before):
            await before

    def web(self) -> Any:
        """What answers requests that are not the server's own: the mounted application, or all that it has."""
        bound = {path: bound_to(app, self.made) for path, app in self.mounts.items()}
        if self.mount in bound and self.apis is None and len(bound) == 1:
            return bound[self.mount]
        return around(ServiceApp(self, self.apis, bound), self.middlewares)


async def answer_http(self: Any, request: Any) -> Any:
    """Requests below its mount."""
    state = {name: one for lifespan in self.lifespans for name, one in lifespan.state.items()}
    return explained(request, await AsgiExchange(request, state).run(self.app))


def service(inner: type | None = None, /, **config: Any) -> Any:
    """Makes a class a service. `workers`, `threads`, `traffic`, `resources` and the like say how it is served."""
    return ClassService(inner, config) if inner is not None else lambda found: ClassService(found, config)
