"""BentoML's names, served by Jitney: write `from jitney.compat import bentoml` instead of `import bentoml`.

`jitney serve service.py:Name --port 3000` serves what `bentoml serve service:Name` serves. docs/coming-from/bentoml.md
says what is here. What is not fails when it is first used, with what to do instead.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jitney.compat.bentoml import exceptions, io, models, validators
from jitney.compat.bentoml.api import api
from jitney.compat.bentoml.client import AsyncHTTPClient, SyncHTTPClient
from jitney.compat.bentoml.context import Context
from jitney.compat.bentoml.dependencies import depends
from jitney.compat.bentoml.hooks import on_deployment, on_shutdown, on_startup
from jitney.compat.bentoml.legacy import Service
from jitney.compat.bentoml.runnable import Runnable
from jitney.compat.bentoml.runner import Runner
from jitney.compat.bentoml.service import service
from jitney.compat.bentoml.store import StoredModel as Model
from jitney.compat.bentoml.store import Tag

if TYPE_CHECKING:
    from jitney.compat.bentoml.frameworks import Framework

    onnx: Framework
    picklable_model: Framework
    pytorch: Framework
    sklearn: Framework
    torchscript: Framework

__all__ = [
    "AsyncHTTPClient",
    "Context",
    "Model",
    "Runnable",
    "Runner",
    "Service",
    "SyncHTTPClient",
    "Tag",
    "api",
    "depends",
    "exceptions",
    "io",
    "models",
    "on_deployment",
    "on_shutdown",
    "on_startup",
    "onnx",
    "picklable_model",
    "pytorch",
    "service",
    "sklearn",
    "torchscript",
    "validators",
]

FRAMEWORKS = ("onnx", "picklable_model", "pytorch", "sklearn", "torchscript")


def __getattr__(name: str) -> Any:
    if name in FRAMEWORKS:
        return importlib.import_module("jitney.compat.bentoml.frameworks").framework(name)
    stand_in = importlib.import_module("jitney.compat.bentoml.missing").missing(name)
    if stand_in is None:
        raise AttributeError(f"module 'bentoml' has no attribute {name!r}")
    return stand_in


def __dir__() -> list[str]:
    return sorted(__all__)
