"""The loaders that are known: ours, and those that other packages declare as entry points of the group
`jitney.loaders`. Looking through them imports no library of a format."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jitney.call.errors import DefinitionError
from jitney.definition.definition import define
from jitney.definition.options import NAME
from jitney.loaders.huggingface.hub import repository_name
from jitney.loaders.loader import Loader, LoadOptions, NotTrusted

GROUP = "jitney.loaders"
OURS = (
    "jitney.loaders.mlflow_folder:MlflowLoader",
    "jitney.loaders.huggingface.endpoint_handler:EndpointHandlerLoader",
    "jitney.loaders.huggingface.pretrained:HuggingFaceLoader",
    "jitney.loaders.scikit_learn:SkopsLoader",
    "jitney.loaders.scikit_learn:PickleLoader",
    "jitney.loaders.xgboost_model:XgboostLoader",
    "jitney.loaders.lightgbm_model:LightgbmLoader",
    "jitney.loaders.catboost_model:CatboostLoader",
    "jitney.loaders.openvino_model:OpenvinoLoader",
    "jitney.loaders.torch_export:ExportedLoader",
    "jitney.loaders.torch_export:CompiledLoader",
    "jitney.loaders.torch_script:ScriptLoader",
    "jitney.loaders.torch_script:SafetensorsLoader",
)
"""In the order in which they are asked."""
FILES_MAX = 100
"""Files of a folder that are looked at."""
SHOWN_MAX = 8
"""Names of files in a message."""
FOUND = "__jitney_found__"
"""The attribute that says which loader made a class of what."""


def loaders() -> Iterator[type[Loader]]:
    """All loaders, those of other packages first."""
    yield from _brought()
    for place in OURS:
        module, _, name = place.partition(":")
        yield getattr(importlib.import_module(module), name)


def _brought() -> list[type[Loader]]:
    """Those of other packages. A worker finds its loader by the format, so one format has one of them."""
    found: dict[str, type[Loader]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda one: one.value):
        kind = point.load()
        other = found.setdefault(kind.format, kind)
        if other is not kind:
            places = " and ".join(f"{one.__module__}:{one.__name__}" for one in (other, kind))
            raise DefinitionError(f"two loaders are called {kind.format!r}: {places}; uninstall one of their packages")
    return list(found.values())


def loader_for(path: Path) -> type[Loader]:
    """The first loader that finds its format there."""
    for one in loaders():
        if one.finds(path):
            return one
    if several := models_among(path):
        told = ", ".join(f"{file.name} ({kind.format})" for file, kind in several[:SHOWN_MAX])
        more = f" and {len(several) - SHOWN_MAX} others" if len(several) > SHOWN_MAX else ""
        raise DefinitionError(
            f"the folder holds {len(several)} models, and none says that it is the one: {told}{more}; name one of the "
            "files, or give each a folder of its own"
        )
    known = ", ".join(dict.fromkeys(one.format for one in loaders()))
    raise DefinitionError(
        f"no known format: {seen(path)}; known are archives, .onnx files, Python definitions, {known}"
    )


def model_path(path: Path) -> Path:
    """The path itself, or the only file of a folder that a loader finds where none finds the folder."""
    if not path.is_dir() or any(one.finds(path) for one in loaders()):
        return path
    found = models_among(path)
    return found[0][0] if len(found) == 1 else path


def models_among(path: Path) -> list[tuple[Path, type[Loader]]]:
    """The files of a folder that are models, each with its loader."""
    files = sorted(one for one in path.iterdir() if one.is_file())[:FILES_MAX] if path.is_dir() else []
    loader = {file: next((one for one in loaders() if one.finds(file)), None) for file in files}
    return [(file, kind) for file, kind in loader.items() if kind is not None]


def seen(path: Path) -> str:
    """What lies there, in words."""
    if not path.is_dir():
        return f"it is a file of {path.stat().st_size} bytes that ends in {path.suffix or 'nothing'}"
    names = sorted(one.name + "/" * one.is_dir() for one in path.iterdir() if not one.name.startswith("."))
    more = f" and {len(names) - SHOWN_MAX} others" if len(names) > SHOWN_MAX else ""
    return f"the folder has {', '.join(names[:SHOWN_MAX])}{more}" if names else "the folder is empty"


def open_path(path: Path, options: LoadOptions) -> Any:
    """The class that serves a file or folder. It may load the model, so it runs in a process of its own."""
    kind = loader_for(path)
    if missing := kind.missing():
        raise DefinitionError(
            f"it is a {kind.format} model, and this Python lacks what runs it: pip install {' '.join(missing)}"
        )
    why = kind.runs_code(path)
    if why is not None and not options.trust:
        raise NotTrusted(why)
    description = kind(options).describe(path)
    found = {"format": kind.format, "trust": options.trust, "task": options.task, "description": description}
    return _served(kind(options), path, found)


def open_again(path: str, found: dict[str, Any]) -> Any:
    """The same class in a worker, by what was written down."""
    kind = next((one for one in loaders() if one.format == found["format"]), None)
    if kind is None:
        raise DefinitionError(f"there is no loader of {found['format']} models here")
    return _served(kind(LoadOptions(found["trust"], found["task"])), Path(path), found)


def _served(loader: Loader, path: Path, found: dict[str, Any]) -> Any:
    target = loader.definition(path, found["description"])
    setattr(target, FOUND, {"loader": found})
    if not define(target).options.name:
        target.__name__ = model_name(path)
    return target


def model_name(path: Path) -> str:
    """The name of the file without its ending, of the folder or of the hub's model, as far as a model can have it."""
    stem = path.name.partition(".")[0] if path.is_file() else repository_name(path) or path.name
    kept = "".join(letter if NAME.fullmatch(letter) or letter in "-." else "_" for letter in stem)
    return kept.lstrip("-.") or "model"
