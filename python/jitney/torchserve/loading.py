"""Finds a model's handler and makes it ready, by TorchServe's rules; reads its yaml file.

A handler is named `file.py`, `module`, `path/module.py` or any of these with `:function`. It is a module-level
function, or the one class its module defines; names the model directory does not know are looked for among the stock
handlers in `ts.torch_handler`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

EntryPoint = Callable[[Any, Any], Any]

STOCK_PACKAGE = "ts.torch_handler"
ENVELOPE_PACKAGE = "ts.torch_handler.request_envelope"
ENVELOPES = ("body", "json", "kserve", "kservev2")


def module_name(handler: str) -> str:
    """The module a handler string names."""
    base = handler.partition(":")[0].replace("\\", "/").rpartition("/")[2]
    return base[:-3] if base.endswith(".py") else base


def run_alone(coroutine: Any) -> Any:
    """Runs a coroutine in a loop of its own."""
    import asyncio

    return asyncio.run(coroutine)


def load_entry_point(handler: str, context: Any, run: Callable[[Any], Any] = run_alone) -> EntryPoint:
    """Imports the handler and initialises it once; `run` runs a coroutine."""
    module = import_handler(module_name(handler))
    function: EntryPoint | None = getattr(module, handler.partition(":")[2] or "handle", None)
    if function is not None:
        ready = function(None, context)
        if inspect.isawaitable(ready):
            run(wait_for(ready))
        return function
    return load_class(module, context)


def in_envelope(name: str, entry_point: EntryPoint) -> EntryPoint:
    """The entry point behind a request envelope."""
    if name not in ENVELOPES:
        raise ValueError(f"unknown request envelope {name!r}; known: {', '.join(ENVELOPES)}")
    (envelope,) = list_classes_from_module(importlib.import_module(f"{ENVELOPE_PACKAGE}.{name}"))
    enveloped: EntryPoint = envelope(entry_point).handle
    return enveloped


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


def load_class(module: ModuleType, context: Any) -> EntryPoint:
    """An instance of the module's only class, initialised; its `handle` is the entry point."""
    classes = list_classes_from_module(module)
    if len(classes) != 1:
        raise ValueError(f"Expected only one class in custom service code or a function entry point {classes}")
    service = classes[0]()
    if getattr(service, "handle", None) is None:
        raise ValueError(f"Expect handle method in class {classes[0]}")
    if hasattr(service, "initialize"):
        service.initialize(context)
    entry_point: EntryPoint = service.handle  # Only now: `initialize` may have replaced it.
    return entry_point


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """The classes defined in `module` itself, optionally only those derived from `parent_class`."""
    return [
        cls
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and (parent_class is None or issubclass(cls, parent_class))
    ]


def get_yaml_config(yaml_file_path: str) -> dict[str, Any]:
    """Reads a yaml file; PyYAML must be installed."""
    try:
        import yaml
    except ImportError as error:
        raise ImportError(f"reading {yaml_file_path} needs PyYAML: pip install pyyaml") from error
    with open(yaml_file_path, encoding="utf-8") as file:
        content: dict[str, Any] = yaml.safe_load(file) or {}
    return content
