"""Jitney's Python package: define models here, serve them with `jitney serve module:object`.

Importing it costs nothing and pulls in no third-party code. Definitions are in the modules
beside this file, apart from every transport; `jitney.worker` is the process a model runs
in, `jitney.testing` drives a definition in unit tests. `jitney.handle` and `jitney.client` call a
server; they are imported when they are first used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 10):  # noqa: UP036 - pip checks it, but workers may run in any Python that is named to them.
    raise ImportError(f"jitney needs Python 3.10 or newer; this is {sys.version.split()[0]} ({sys.executable})")

from jitney.application import Bound, bind, depends
from jitney.context import CallContext, context
from jitney.decorators import batch, endpoint, model
from jitney.definition import Definition, Endpoint, define
from jitney.errors import (
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
from jitney.gpu.device import Device, device
from jitney.gpu.graphed import graphs
from jitney.gpu.padding import Padded, pad
from jitney.http.request import HttpRequest
from jitney.http.response import Response
from jitney.request import Request
from jitney.streaming import END
from jitney.tensor import Tensor
from jitney.typed import default

if TYPE_CHECKING:
    from jitney.asgi_model import asgi
    from jitney.client import AsyncClient, Client, Retry
    from jitney.handle import Handle, Session, connect, run
    from jitney.metrics import Counter, Gauge, Histogram
    from jitney.offline import InferError, infer

__version__ = "0.1.0"

__all__ = [
    "END",
    "AsyncClient",
    "BadInput",
    "Bound",
    "CallContext",
    "Client",
    "Counter",
    "Definition",
    "DefinitionError",
    "Device",
    "Disconnected",
    "Endpoint",
    "Error",
    "Expired",
    "Gauge",
    "Handle",
    "Histogram",
    "HttpRequest",
    "InferError",
    "ItemErrors",
    "NotFound",
    "Overloaded",
    "Padded",
    "RemoteError",
    "Request",
    "Response",
    "Retry",
    "Session",
    "Tensor",
    "WrongLength",
    "asgi",
    "batch",
    "bind",
    "connect",
    "context",
    "default",
    "define",
    "depends",
    "device",
    "endpoint",
    "graphs",
    "infer",
    "model",
    "pad",
    "run",
]

_LATER = {
    **dict.fromkeys(("AsyncClient", "Client", "Retry"), "jitney.client"),
    **dict.fromkeys(("Handle", "Session", "connect", "run"), "jitney.handle"),
    "asgi": "jitney.asgi_model",
    **dict.fromkeys(("Counter", "Gauge", "Histogram"), "jitney.metrics"),
    **dict.fromkeys(("InferError", "infer"), "jitney.offline"),
}
"""What asks a server or runs a job, which a worker never does."""


def __dir__() -> list[str]:
    """The public names and nothing else, those that are imported later too."""
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'jitney' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)
