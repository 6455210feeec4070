"""What the stock handlers need installed, and the message when it is missing.

Only this file has the text, so that every handler fails to load with the same clear sentence.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

PACKAGES = {"PIL": "pillow", "torch": "torch", "torchvision": "torchvision", "onnxruntime": "onnxruntime"}
"""What to ask pip for, by module."""


def need(module: str, purpose: str) -> Any:
    """Imports a module, or raises an error that tells what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = PACKAGES.get(module.partition(".")[0], module)
        message = (
            f"{purpose} needs {module}, which the workers' Python ({sys.executable}) cannot import: {error}. "
            f"Install it there (pip install {package}) or point the server at a Python that has it."
        )
        raise ImportError(message) from error


def installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
