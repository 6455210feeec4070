"""BentoML's names, served by Jitney: write `from jitney.compat import bentoml` instead of `import bentoml`.

`jitney serve service.py:Name --port 3000` serves what `bentoml serve service:Name` serves. docs/coming-from/bentoml.md
says what is here. What is not fails when it is first used, with what to do instead.
"""

from __future__ import annotations

from jitney.compat.bentoml import exceptions, io, models, validators
from jitney.compat.bentoml.api import api, importing, on_deployment, on_shutdown, on_startup
from jitney.compat.bentoml.client import AsyncHTTPClient, SyncHTTPClient
from jitney.compat.bentoml.context import Context
from jitney.compat.bentoml.dependencies import depends
from jitney.compat.bentoml.frameworks import onnx, picklable_model, pytorch, sklearn, torchscript
from jitney.compat.bentoml.legacy import Service
from jitney.compat.bentoml.missing import missing
from jitney.compat.bentoml.runner import Runnable, Runner
from jitney.compat.bentoml.service import service
from jitney.compat.bentoml.store import StoredModel as Model
from jitney.compat.bentoml.store import Tag

__all__ = [
    "AsyncHTTPClient", "Context", "Model", "Runnable", "Runner", "Service", "SyncHTTPClient", "Tag", "api", "depends",
    "exceptions", "importing", "io", "models", "on_deployment", "on_shutdown", "on_startup", "onnx", "picklable_model",
    "pytorch", "service", "sklearn", "torchscript", "validators",
]  # fmt: skip


__getattr__ = missing


def __dir__() -> list[str]:
    return sorted(__all__)
