"""Finds what `module:object` names, in the directory the user stands in.

The module is a dotted name or a path to a `.py` file, and may be left without an object if it
holds only one definition. Importing runs the user's code: only processes that are meant to run
it come here.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from jitney.decorators import note_of
from jitney.errors import DefinitionError


def locate(spec: str, directory: str) -> Any:
    """Imports the module and returns the object."""
    module_name, _, path = spec.partition(":")
    module_name = _enter(module_name, directory)
    module = _import(module_name)
    return _walk(module, path) if path else _only_definition(module)


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
            marked = ", ".join(definitions(module)) or "none"
            raise DefinitionError(f"{module.__name__} has no {path!r}; its definitions: {marked}")
        found = getattr(found, name)
    return found


def definitions(module: ModuleType) -> list[str]:
    """The names of what a module defines with a decorator."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and note_of(value) and value.__module__ == module.__name__
    ]


def _only_definition(module: ModuleType) -> Any:
    found = definitions(module)
    if len(found) != 1:
        names = ", ".join(f"{module.__name__}:{name}" for name in found) or "none with a decorator of jitney"
        raise DefinitionError(f"name the object to serve as {module.__name__}:object; there are: {names}")
    return getattr(module, found[0])
