"""Jitney's Python package: define models here, serve them with `jitney serve module:object`.

Importing it costs nothing and pulls in no third-party code. What a definition is lives in the
modules beside this file, apart from every transport; `jitney.worker` is the process a model runs
in, `jitney.testing` drives a definition in unit tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jitney.decorators import batch, endpoint, model
from jitney.definition import Definition, Endpoint, define
from jitney.errors import BadInput, DefinitionError, Error, ItemErrors, WrongLength
from jitney.request import Request
from jitney.streaming import END

if TYPE_CHECKING:
    from jitney.offline import InferError, infer

__version__ = "0.1.0"

__all__ = [
    "END",
    "BadInput",
    "Definition",
    "DefinitionError",
    "Endpoint",
    "Error",
    "InferError",
    "ItemErrors",
    "Request",
    "WrongLength",
    "batch",
    "define",
    "endpoint",
    "infer",
    "model",
]

_LATER = {
    **dict.fromkeys(("InferError", "infer"), "jitney.offline"),
}
"""What a worker never does."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'jitney' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)
