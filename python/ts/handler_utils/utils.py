"""Streaming and import helpers for handlers."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from ts.protocol.otf_writing import create_predict_response


def send_intermediate_predict_response(
    ret: Sequence[Any], request_ids: dict[int, str], message: str, code: int, context: Any
) -> None:
    """Gives every request of the batch one part of its answer before the last one.

    It leaves for the client at once, as one HTTP chunk; what the handler returns in the end is the
    last part. `message` and `code` are used only outside Jitney's worker, where the context holds
    the socket of TorchServe's frontend. It may be called from any thread while the handler works
    on the batch.
    """
    if hasattr(context, "send_intermediate"):
        context.send_intermediate(ret, request_ids)
        return
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return  # One rank speaks for all.
    context.cl_socket.sendall(create_predict_response(ret, request_ids, message, code, context, True))


def import_class(class_name: str, module_prefix: str | None = None) -> type:
    """Imports `package.module.Class`; `module_prefix` is put in front of a relative name."""
    module_name, _, name = class_name.rpartition(".")
    if module_prefix is not None:
        module_name = f"{module_prefix}.{module_name}" if module_name else module_prefix
    if not module_name or not name:
        raise ImportError(f"{class_name!r} names no class of a module; write it as package.module.Class")
    try:
        found: type = getattr(importlib.import_module(module_name), name)
    except AttributeError as error:
        raise ImportError(f"module {module_name} has no class {name}") from error
    return found
