"""Jitney's Python package: define models here, serve them with `jitney serve module:object`.

Importing it costs nothing and pulls in no third-party code. What users import is here, in `jitney.testing`,
`jitney.client`, `jitney.plugin` and `jitney.compat`; every other path may change. The rooms, from the ground up; each
imports only those above it in this list, and none imports this file:

    call files values wire          what a call is, the files and values that clients send, their bytes
    gpu machine                     devices, this process
    definition http packing         how models are defined, what HTTP makes of them, the directory that is served
    execution                       runs the functions of a definition on batches
    loaders                         makes definitions of files and folders of other libraries
    client handle                   call a server; imported when they are first used
    torchserve triton               the APIs that handlers and model.py files are written for
    worker plugin                   the process that a model, or a plugin, runs in
    offline cluster check           jobs without a server, workers placed by Ray, `jitney check` and unit tests
    compat                          other products' APIs over all of that; it can be taken out in one piece
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 10):  # noqa: UP036 - pip checks it, but workers may run in any Python that is named to them.
    raise ImportError(f"jitney needs Python 3.10 or newer; this is {sys.version.split()[0]} ({sys.executable})")

if TYPE_CHECKING:
    from jitney.call.context import CallContext, context, multiplexed_model_id
    from jitney.call.errors import (
        BadInput,
        DefinitionError,
        Disconnected,
        Error,
        Expired,
        ItemErrors,
        NotFound,
        Overloaded,
        RemoteError,
        WrongLength,
    )
    from jitney.call.request import Request
    from jitney.client import AsyncClient, Client, Retry
    from jitney.definition.application import Bound, bind, depends
    from jitney.definition.decorators import batch, default, endpoint, model
    from jitney.definition.definition import Definition, Endpoint, define
    from jitney.definition.metrics import Counter, Gauge, Histogram
    from jitney.definition.multiplexed import multiplexed
    from jitney.definition.wiring import chain, fan_out
    from jitney.execution.splitting import END
    from jitney.gpu.device import Device, device
    from jitney.gpu.graphed import graphs
    from jitney.gpu.padding import Padded, pad
    from jitney.handle import Handle, Job, Session, connect, run
    from jitney.http.asgi import asgi
    from jitney.http.mcp import mcp
    from jitney.http.request import HttpRequest
    from jitney.http.response import Response
    from jitney.offline.infer import InferError, infer
    from jitney.offline.ray_dataset import map_batches
    from jitney.values.tensor import Tensor

__version__ = "0.2.0"

__all__ = [
    "END", "AsyncClient", "BadInput", "Bound", "CallContext", "Client", "Counter", "Definition", "DefinitionError",
    "Device", "Disconnected", "Endpoint", "Error", "Expired", "Gauge", "Handle", "Histogram", "HttpRequest",
    "InferError", "ItemErrors", "Job", "NotFound", "Overloaded", "Padded", "RemoteError", "Request", "Response",
    "Retry", "Session", "Tensor", "WrongLength", "asgi", "batch", "bind", "chain", "connect", "context", "default",
    "define", "depends", "device", "endpoint", "fan_out", "graphs", "infer", "map_batches", "mcp", "model",
    "multiplexed", "multiplexed_model_id", "pad", "run",
]  # fmt: skip

_MODULES = {
    "jitney.call.context": ("CallContext", "context", "multiplexed_model_id"),
    "jitney.call.errors": (
        "BadInput",
        "DefinitionError",
        "Disconnected",
        "Error",
        "Expired",
        "ItemErrors",
        "NotFound",
        "Overloaded",
        "RemoteError",
        "WrongLength",
    ),
    "jitney.call.request": ("Request",),
    "jitney.client": ("AsyncClient", "Client", "Retry"),
    "jitney.definition.application": ("Bound", "bind", "depends"),
    "jitney.definition.decorators": ("batch", "default", "endpoint", "model"),
    "jitney.definition.definition": ("Definition", "Endpoint", "define"),
    "jitney.definition.metrics": ("Counter", "Gauge", "Histogram"),
    "jitney.definition.multiplexed": ("multiplexed",),
    "jitney.definition.wiring": ("chain", "fan_out"),
    "jitney.execution.splitting": ("END",),
    "jitney.gpu.device": ("Device", "device"),
    "jitney.gpu.graphed": ("graphs",),
    "jitney.gpu.padding": ("Padded", "pad"),
    "jitney.handle": ("Handle", "Job", "Session", "connect", "run"),
    "jitney.http.asgi": ("asgi",),
    "jitney.http.mcp": ("mcp",),
    "jitney.http.request": ("HttpRequest",),
    "jitney.http.response": ("Response",),
    "jitney.offline.infer": ("InferError", "infer"),
    "jitney.offline.ray_dataset": ("map_batches",),
    "jitney.values.tensor": ("Tensor",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
"""Where each name is. It is imported when it is first used: a worker needs few of them."""


def __dir__() -> list[str]:
    """The public names and nothing else."""
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'jitney' has no attribute {name!r}")
    import importlib

    found = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return found
