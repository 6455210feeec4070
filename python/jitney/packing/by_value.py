"""Where workers find a definition: in the module that it was written in, or in a file that is made for it.

What was typed into a cell, and what a function made, has no name to import it by. It is written with
cloudpickle into a private directory, beside a small module that reads it again, and that module is served
like any other. Only this program's own files are ever read back.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import sysconfig
import tempfile
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from jitney.call.errors import DefinitionError
from jitney.definition.application import graph
from jitney.machine.process import is_interactive

OBJECT = "target"
PICKLE = "target.pickle"
INSTALL = "pip install 'jitney[notebook]' (cloudpickle)"

MODULE = '''"""Reads what `jitney.run` wrote beside it."""

import os
import sys

WRITTEN_BY = {version!r}
if sys.version_info[:2] != WRITTEN_BY:
    found, wanted = (".".join(map(str, one)) for one in (sys.version_info[:2], WRITTEN_BY))
    raise ImportError(f"it was written by Python {{wanted}} and cannot be read by Python {{found}}; put it into a file")
sys.path.extend(entry for entry in {path} if entry not in sys.path)
try:
    import cloudpickle
except ImportError:
    raise ImportError(f"{{sys.executable}} needs cloudpickle to read it: {install}") from None

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), {pickle!r}), "rb") as written:
    {object} = cloudpickle.load(written)
'''
NAMED = "{object}.__name__ = {name!r}\n"


class Source(NamedTuple):
    """What `jitney serve` is told."""

    spec: str
    """`module:object`."""
    directory: str
    """Where it is imported from, and where workers stand."""


def importable(target: Any) -> Source | None:
    """Where a function or class can be imported from; None if nowhere."""
    path = getattr(target, "__qualname__", None)
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(path, str) or "<" in path or not isinstance(file, str):
        return None
    is_main = module.__name__ == "__main__"
    if (is_main and is_interactive()) or not file.endswith(".py") or not os.path.isfile(file):
        return None
    if _found(module, path) is not target:
        return None
    source = Path(file).resolve()
    name = getattr(getattr(module, "__spec__", None), "name", "") if is_main else module.__name__
    if not name:
        return Source(f"{source.name}:{path}", str(source.parent))
    depth = name.count(".") + (source.name == "__init__.py")
    return Source(f"{name}:{path}", str(source.parents[depth]))


def write(target: Any, directory: str, *, name: str = "", own_python: bool = True) -> Source:
    """Writes a definition that cannot be imported, and returns where it is now.

    `name` is for what has none, such as a lambda. Modules that it uses are imported from where this process has
    them; not those of this Python's libraries if workers run another one.
    """
    try:
        import cloudpickle
    except ImportError:
        raise DefinitionError(f"{why_not(target)}; {INSTALL} and it is sent as it is, or put it into a file") from None
    try:
        with _readable_hints(target):
            pickled = cloudpickle.dumps(target)
    except Exception as error:
        raise DefinitionError(f"{_shown(target)} cannot be written for the workers: {error}") from error
    made = Path(tempfile.mkdtemp(prefix="cell_", dir=directory))
    (made / PICKLE).write_bytes(pickled)
    module = made / f"jitney_{made.name}.py"  # Of no other module's name, since its directory is searched first.
    path = json.dumps(_search_path(own_python))
    version = tuple(sys.version_info[:2])
    text = MODULE.format(version=version, path=path, install=INSTALL, pickle=PICKLE, object=OBJECT)
    module.write_text(text + (NAMED.format(object=OBJECT, name=name) if name else ""), encoding="utf-8")
    return Source(f"{module}:{OBJECT}", os.getcwd())


@contextlib.contextmanager
def _readable_hints(target: Any) -> Iterator[None]:
    """Hints that are texts (`from __future__ import annotations`) as the types that they name, for as long as it
    lasts: the names in them do not go along with a function."""
    changed = []
    for function in _functions(target):
        own = function.__annotations__
        if not any(isinstance(hint, str) for hint in own.values()):
            continue
        with contextlib.suppress(Exception):  # A name that is not defined; the hint counts as absent then.
            function.__annotations__ = typing.get_type_hints(function, include_extras=True)
            changed.append((function, own))
    try:
        yield
    finally:
        for function, own in changed:
            function.__annotations__ = own


def _functions(target: Any) -> Iterator[FunctionType]:
    """The functions of a definition, or of all parts of an application, that would go along."""
    for part in graph(target).parts if hasattr(target, "__jitney_application__") else ():
        yield from _functions(part.definition.target)
    owner = target if isinstance(target, type) else type(target)
    found = [target, *(member for one in owner.__mro__ for member in vars(one).values())]
    yield from (one for one in found if isinstance(one, FunctionType))


def why_not(target: Any) -> str:
    """Why a definition cannot be imported."""
    path = getattr(target, "__qualname__", None)
    if not isinstance(path, str):
        return f"{_shown(target)} has no name that workers could import it by"
    if "<lambda>" in path:
        return "a lambda has no name that workers could import it by"
    if "<" in path:
        return f"{path} is defined inside a function, and workers can import it only from a module"
    return f"{path} is defined in a notebook or console, where workers cannot import it"


def _shown(target: Any) -> str:
    return getattr(target, "__qualname__", None) or f"an object of type {type(target).__name__}"


def _found(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _search_path(own_python: bool) -> list[str]:
    entries = [os.path.abspath(entry) for entry in sys.path]
    if own_python:
        return entries
    installed = tuple({sysconfig.get_path(one) for one in ("stdlib", "platstdlib", "purelib", "platlib")})
    return [entry for entry in entries if not entry.startswith(installed) and not entry.endswith(".zip")]
