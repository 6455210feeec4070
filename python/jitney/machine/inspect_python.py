"""`python -m jitney.machine.inspect_python`: what this interpreter has, as JSON, for `jitney doctor`.

Every question is answered by itself: a broken package is an entry of its own and spoils no other answer.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import platform
import sys
from typing import Any

PACKAGES = ("numpy", "torch", "torchvision", "transformers", "onnxruntime", "pandas", "pyarrow", "ray")


def main() -> int:
    """Prints the answers."""
    print(
        json.dumps({"version": platform.python_version(), "worker": worker(), "packages": packages(), "torch": torch()})
    )
    return 0


def worker() -> str | None:
    """Why the worker of this program cannot be imported; None if it can."""
    return reason("jitney.worker.run")


def reason(module: str) -> str | None:
    """Why a module cannot be imported; None if it can."""
    try:
        importlib.import_module(module)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


def packages() -> dict[str, str]:
    """The versions of packages that models use; those that are not installed are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def torch() -> dict[str, Any] | None:
    """Whether torch can be imported and sees GPUs; None if it is not installed."""
    if "torch" not in packages():
        return None
    problem = reason("torch")
    if problem is not None:
        return {"problem": problem}
    module = sys.modules["torch"]
    return {
        "version": str(module.__version__),
        "cuda": module.version.cuda,
        "available": bool(module.cuda.is_available()),
        "devices": int(module.cuda.device_count()),
    }


if __name__ == "__main__":
    sys.exit(main())
