"""Finds what `module:object` names, in the directory the user stands in.

The module is a dotted name or a path to a `.py` file, and may be left without an object if it
holds only one definition. Importing runs the user's code: only processes that are meant to run
it come here.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from types import ModuleType
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.application import Bound, graph
from jitney.definition.decorators import note_of
from jitney.definition.wiring import wiring_of


def locate(spec: str, directory: str) -> Any:
    """Imports the module and returns the object. A chain or fan-out without a name has that of its variable."""
    module_name, _, path = spec.partition(":")
    module_name = _enter(module_name, directory)
    module = _import(module_name)
    if not path:
        path = _only_definition(module)
    found = _walk(module, path)
    unnamed = isinstance(found, Bound) and found.name is None and wiring_of(found.target) is not None
    return found.with_options(name=path.rpartition(".")[2]) if unnamed else found


def _enter(module: str, directory: str) -> str:
    """Makes the directory importable; a path to a file is turned into a module beside it."""
    if module.endswith(".py"):
        file = os.path.join(directory, module)
        if not os.path.isfile(file):
            raise DefinitionError(f"there is no file {module}")
        directory, name = os.path.split(file)
        module = name[: -len(".py")]
    if directory not in sys.path:
        sys.path.insert(0, directory)
    return module


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise DefinitionError(f"there is no module {name!r} here or on the Python path") from None
        raise


def _walk(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            known = list(definitions(module))
            near = difflib.get_close_matches(path, [*known, *vars(module)], 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            marked = ", ".join(known) or "none"
            raise DefinitionError(f"{module.__name__} has no {path!r}{hint}; its definitions: {marked}")
        found = getattr(found, name)
    return found


def definitions(module: ModuleType) -> list[str]:
    """The names of what a module defines with a decorator, and of what it binds."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and (_is_decorated(value, module) or _is_application(value))
    ]


def _is_decorated(value: Any, module: ModuleType) -> bool:
    return callable(value) and note_of(value) is not None and value.__module__ == module.__name__


def _is_application(value: Any) -> bool:
    """Whether it is bound, or something that a layer over this package serves."""
    return not isinstance(value, type) and hasattr(value, "__jitney_application__")


def _only_definition(module: ModuleType) -> str:
    """The name of the definition that a module has, or the one whose parts the others are."""
    found = _roots(module, definitions(module))
    if len(found) != 1:
        names = ", ".join(f"{module.__name__}:{name}" for name in found) or "none with a decorator of jitney"
        raise DefinitionError(f"name the object to serve as {module.__name__}:object; there are: {names}")
    return found[0]


def _roots(module: ModuleType, names: list[str]) -> list[str]:
    """Those that are no part of another."""
    if len(names) < 2:
        return names
    applications = {name: graph(getattr(module, name)) for name in names}
    roots = {name: one.root.bound for name, one in applications.items()}
    called = {
        id(_written(part.definition.target))
        for name, one in applications.items()
        for part in one.parts
        if part is not one.root or roots[name] is getattr(module, name)
    }
    bound = [name for name in names if isinstance(getattr(module, name), Bound)]
    return [name for name in names if name in bound or id(_written(roots[name].definition.target)) not in called]


def _written(target: Any) -> Any:
    """What the user wrote, where a layer over this package has made a class of it."""
    return getattr(target, "__jitney_origin__", target)
