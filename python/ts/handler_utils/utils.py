"""Streaming and import helpers for handlers."""

from __future__ import annotations

import importlib

from ts.protocol.otf_message_handler import send_part as send_intermediate_predict_response

__all__ = ["import_class", "send_intermediate_predict_response"]


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
