"""Finds a model's handler and makes it ready, by TorchServe's rules.

A handler is named `file.py`, `module`, `path/module.py` or any of these with `:function`.
It is a module-level function, or the one class its module defines; names the model directory
does not know are looked for among the stock handlers in `ts.torch_handler`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Awaitable
from types import ModuleType
from typing import Any, Callable, NamedTuple

from jitney.worker.context import WorkerContext
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from ts.utils.util import list_classes_from_module

EntryPoint = Callable[[Any, WorkerContext], Any]

STOCK_PACKAGE = "ts.torch_handler"


ENVELOPE_PACKAGE = "ts.torch_handler.request_envelope"
ENVELOPES = ("body", "json", "kserve", "kservev2")


class LoadedModel(NamedTuple):
    """A handler that is ready, and the context it is called with."""

    entry_point: EntryPoint
    context: WorkerContext
    decode_input: bool
    mode: str = "single"
    close: Callable[[], None] | None = None
    """Called once when the worker ends, if there is anything to end."""


def load_model(spec: dict[str, Any]) -> LoadedModel:
    """Loads what a LOAD frame describes; leaves the process inside the model directory."""
    context = make_context(spec)
    if is_defined(spec.get("model_yaml_config") or {}):
        return load_definition(spec, context)
    enter_model_dir(spec["model_dir"], spec["handler"])
    entry_point = load_entry_point(spec["handler"], context)
    envelope = spec.get("envelope")
    if envelope:
        entry_point = in_envelope(envelope, entry_point)
    return LoadedModel(entry_point, context, spec.get("decode_input", True), spec.get("mode", "single"))


def is_defined(settings: dict[str, Any]) -> bool:
    """Whether the model is a definition of `jitney` and not a TorchServe handler."""
    return isinstance(settings.get("jitney"), dict) and "object" in settings["jitney"]


def load_definition(spec: dict[str, Any], context: WorkerContext) -> LoadedModel:
    """Brings a definition to life. Imported only here: handlers need none of it."""
    from jitney.worker.defined import DefinedModel

    model = DefinedModel(spec["model_yaml_config"])
    return LoadedModel(model, context, True, spec.get("mode", "single"), model.instance.close)


def make_context(spec: dict[str, Any]) -> WorkerContext:
    """The context all calls of this worker share, with its metrics reading the current request ids."""
    metrics = MetricsCacheYamlImpl()
    context = WorkerContext(
        spec["model_name"],
        spec["model_dir"],
        spec.get("manifest") or {},
        spec.get("batch_size", 1),
        spec.get("gpu_id"),
        spec.get("server_version", ""),
        spec.get("limit_max_image_pixels", True),
        metrics,
        spec.get("model_yaml_config") or {},
    )
    metrics.set_request_ids(lambda: context.request_ids)
    metrics.set_model_name(context.model_name)
    metrics.declare(spec.get("model_metrics") or {})
    return context


def enter_model_dir(model_dir: str, handler: str) -> None:
    """Makes the model directory the working directory and the first place to import from.

    A handler given with a directory is imported from there if it is really there; archives
    usually keep only the file's base name.
    """
    model_dir = os.path.abspath(model_dir)
    os.chdir(model_dir)
    sys.path.insert(0, model_dir)
    path = handler.partition(":")[0]
    directory = os.path.dirname(os.path.join(model_dir, path))
    if directory != model_dir and os.path.exists(os.path.join(directory, module_name(handler) + ".py")):
        sys.path.insert(0, directory)


def module_name(handler: str) -> str:
    """The module a handler string names."""
    base = handler.partition(":")[0].replace("\\", "/").rpartition("/")[2]
    return base[:-3] if base.endswith(".py") else base


def load_entry_point(handler: str, context: WorkerContext) -> EntryPoint:
    """Imports the handler and initialises it once."""
    module = import_handler(module_name(handler))
    function = getattr(module, handler.partition(":")[2] or "handle", None)
    if function is not None:
        ready = function(None, context)
        if inspect.isawaitable(ready):
            asyncio.run(wait_for(ready))
        return function  # type: ignore[no-any-return]
    return load_class(module, context)


def in_envelope(name: str, entry_point: EntryPoint) -> EntryPoint:
    """The entry point behind a request envelope."""
    if name not in ENVELOPES:
        raise ValueError(f"unknown request envelope {name!r}; known: {', '.join(ENVELOPES)}")
    (envelope,) = list_classes_from_module(importlib.import_module(f"{ENVELOPE_PACKAGE}.{name}"))
    return envelope(entry_point).handle  # type: ignore[no-any-return]


async def wait_for(ready: Awaitable[Any]) -> Any:
    """Awaits the initialisation of a handler that is a coroutine function."""
    return await ready


def import_handler(name: str) -> ModuleType:
    """The handler's module, the model's own before a stock one."""
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not is_about(error, name):
            raise
    try:
        return importlib.import_module(f"{STOCK_PACKAGE}.{name}")
    except ModuleNotFoundError as error:
        if not is_about(error, f"{STOCK_PACKAGE}.{name}"):
            raise
    raise ModuleNotFoundError(
        f"handler module {name!r} is neither in the model directory nor a stock handler", name=name
    )


def is_about(error: ModuleNotFoundError, name: str) -> bool:
    """Whether it is `name` (or a package it lies in) that is missing, not something it imports."""
    return error.name is not None and (name + ".").startswith(error.name + ".")


def load_class(module: ModuleType, context: WorkerContext) -> EntryPoint:
    """An instance of the module's only class, initialised; its `handle` is the entry point."""
    classes = list_classes_from_module(module)
    if len(classes) != 1:
        raise ValueError(f"Expected only one class in custom service code or a function entry point {classes}")
    service = classes[0]()
    entry_point = getattr(service, "handle", None)
    if entry_point is None:
        raise ValueError(f"Expect handle method in class {classes[0]}")
    if hasattr(service, "initialize"):
        service.initialize(context)
    return service.handle  # type: ignore[no-any-return]  # Asked for again: `initialize` may have replaced it.
