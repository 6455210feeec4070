"""Jitney's Python package: define models here, serve them with `jitney serve module:object`.

Importing it costs nothing and pulls in no third-party code. What a definition is lives in the
modules beside this file, apart from every transport; `jitney.worker` is the process a model runs
in, `jitney.testing` drives a definition in unit tests.
"""

from jitney.decorators import batch, endpoint, model
from jitney.definition import Definition, Endpoint, define
from jitney.errors import BadInput, DefinitionError, Error, ItemErrors, WrongLength
from jitney.request import Request
from jitney.streaming import END

__version__ = "0.1.0"

__all__ = [
    "END",
    "BadInput",
    "Definition",
    "DefinitionError",
    "Endpoint",
    "Error",
    "ItemErrors",
    "Request",
    "WrongLength",
    "batch",
    "define",
    "endpoint",
    "model",
]
