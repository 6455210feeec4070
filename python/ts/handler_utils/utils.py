"""Streaming and import helpers for handlers."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any


def send_intermediate_predict_response(
    ret: Sequence[Any], request_ids: dict[int, str], message: str, code: int, context: Any
) -> None:
    """Gives every request of the batch one part of its answer before the last one.

    It leaves for the client at once, as one HTTP chunk; what the handler returns in the end is the
    last part. `message` and `code` are not used. It may be called from any thread while the
    handler works on the batch.
    """
    context.send_intermediate(ret, request_ids)


def import_class(class_name: str, module_prefix: str | None = None) -> type:
    """Imports `package.module.Class`; `module_prefix` is put in front of a relative name."""
    module_name, _, name = class_name.rpartition(".")
    if module_prefix is not None:
        module_name = f"{module_prefix}.{module_name}" if module_name else module_prefix
    return getattr(importlib.import_module(module_name), name)  # type: ignore[no-any-return]
