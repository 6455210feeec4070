"""Other processes that compile a model: side by side, and without taking the interpreter from a worker that serves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ts
from jitney.gpu.graphs import RunShape
from jitney.gpu.inputs import CannotCompile

MODULE = "ts.torch_handler.compile_aside"
ERROR_CHARS = 500
PROCESSES_MAX = 8
"""Each holds a copy of the model on the GPU while it works."""


class CompilingProcesses:
    """Starts processes that load the model of a handler, as its worker did, and compile it into its cache."""

    def __init__(self, handler: Any, context: Any) -> None:
        self.request = request_of(handler, context)

    def compile(self, shapes: Sequence[RunShape]) -> None:
        """Returns when all shapes are compiled; raises CannotCompile if one is not."""
        count = max(1, min(len(shapes), PROCESSES_MAX, (os.cpu_count() or 1) // 2))
        running = [self._start(shapes[first::count]) for first in range(count)]
        failures = [told for told in map(failure_of, running) if told]
        if failures:
            raise CannotCompile(failures[0])

    def _start(self, shapes: Sequence[RunShape]) -> subprocess.Popen[str]:
        home = Path(ts.__file__).parent.parent  # `-m` looks for modules in the working directory first.
        path = os.pathsep.join(filter(None, (str(home), os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE], env={**os.environ, "PYTHONPATH": path, **THREADS}, cwd=home, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        if process.stdin is not None:
            try:
                process.stdin.write(json.dumps({**self.request, "shapes": shapes}))
                process.stdin.close()
            except OSError:
                pass  # It has ended already; its exit status says why.
            process.stdin = None
        return process


THREADS = {"TORCHINDUCTOR_COMPILE_THREADS": "2"}
"""Torch would start a process per core for each of them."""


def failure_of(process: subprocess.Popen[str]) -> str | None:
    """Waits for a process; what it said if it failed."""
    _, said = process.communicate()
    return f"exit status {process.returncode}: {said.strip()[-ERROR_CHARS:]}" if process.returncode else None


def request_of(handler: Any, context: Any) -> dict[str, Any]:
    """What the other process needs to load the same model."""
    properties = context.system_properties
    return {
        "module": type(handler).__module__,
        "name": type(handler).__qualname__,
        "model_name": getattr(context, "model_name", ""),
        "manifest": context.manifest,
        "model_dir": os.path.abspath(properties.get("model_dir")),
        "batch_size": properties.get("batch_size"),
        "gpu_id": properties.get("gpu_id"),
        "config": context.model_yaml_config,
        "sizes": list(getattr(context, "batch_sizes", None) or ()),
        "lengths": list(getattr(context, "batch_lengths", None) or ()),
        "compile_cache": getattr(context, "compile_cache", None),
        "parent": os.getpid(),
    }
