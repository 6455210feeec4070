"""A process that compiles a model into its cache, for a worker that serves meanwhile.

python -m ts.torch_handler.compile_aside < request.json
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import time
from typing import Any

from jitney.gpu.graphs import RunShape
from ts.context import Context
from ts.torch_handler.warm_up import WarmUp

NICENESS = 10
LOOK_SECONDS = 1.0


def compile_model(request: dict[str, Any]) -> None:
    """Loads the model that a request describes, as its worker did, and compiles it."""
    model_dir = request["model_dir"]
    os.chdir(model_dir)
    sys.path.insert(0, model_dir)
    context: Any = Context(
        request["model_name"], model_dir, request["manifest"], request["batch_size"], request["gpu_id"], "",
        model_yaml_config=request["config"],
    )  # fmt: skip
    context.batch_sizes, context.batch_lengths = request["sizes"], request["lengths"]
    context.compile_cache = request["compile_cache"]
    handler = getattr(importlib.import_module(request["module"]), request["name"])()
    handler.initialize(context)
    WarmUp(handler, context).compile_only([RunShape(*each) for each in request["shapes"]])


def end_with(parent: int) -> None:
    """Ends this process when its worker is gone."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def main() -> None:
    """Reads the request and ends with the worker that made it."""
    request = json.load(sys.stdin)
    threading.Thread(target=end_with, args=(request["parent"],), daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    compile_model(request)


if __name__ == "__main__":
    main()
