"""Streaming and import helpers for handlers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any


def send_intermediate_predict_response(
    ret: Sequence[Any], request_ids: dict[int, str], message: str, code: int, context: Any
) -> None:
    """Gives every request of the batch one part of its answer before the last one.

    Jitney does not stream yet: the parts are kept and put in front of the final answer's body,
    so a client gets one full response with the same bytes. `message` and `code` are not used.
    """
    for idx in request_ids:
        context.keep_intermediate(idx, ret[idx])


def import_class(class_name: str, module_prefix: str | None = None) -> type:
    """Imports `package.module.Class`; `module_prefix` is put in front of a relative name."""
    module_name, _, name = class_name.rpartition(".")
    if module_prefix is not None:
        module_name = f"{module_prefix}.{module_name}" if module_name else module_prefix
    return getattr(importlib.import_module(module_name), name)  # type: ignore[no-any-return]
