"""Compiles a model while it serves: another process fills the cache, then this one takes the compiled graphs over."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ts
from jitney.gpu.errors import CannotCapture
from ts.torch_handler.model_graphs import Arguments
from ts.torch_handler.variants import ModelCompiler

logger = logging.getLogger(__name__)

MODULE = "ts.torch_handler.compile_aside"
ERROR_CHARS = 500


class BackgroundCompilation:
    """One compilation, on a thread that waits for the other process."""

    def __init__(self, compiler: ModelCompiler, given: Arguments, handler: Any, context: Any) -> None:
        self.compiler, self.given = compiler, given
        self.request = json.dumps(request_of(handler, context))

    def start(self) -> threading.Thread:
        """Returns at once. Whatever goes wrong, the model goes on as it is."""
        thread = threading.Thread(target=self._run, name="compiling", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            self.fill_cache()
            taken = self.take_over()
            logger.info("Compiled the model in the background; %d batch sizes run compiled now", taken)
        except Exception as error:
            logger.warning("The model runs uncompiled, since compiling it in the background failed: %s", error)

    def fill_cache(self) -> None:
        """Has another process compile the model: here it would take the interpreter from the requests."""
        home = Path(ts.__file__).parent.parent  # `-m` looks for modules in the working directory first.
        path = os.pathsep.join(filter(None, (str(home), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", MODULE]
        done = subprocess.run(
            command, input=self.request, env={**os.environ, "PYTHONPATH": path}, cwd=home, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()[-ERROR_CHARS:]}")

    def take_over(self) -> int:
        """Loads what was compiled, captures it beside the graphs in use, and takes those that are faster."""
        sized = self.compiler.sized
        variant = self.compiler.variant(self.given, ignored)
        twin = sized.twin([variant])
        try:
            twin.capture(*self.given, ignored)
        except CannotCapture as error:
            raise RuntimeError(str(error)) from error
        taken = sized.take(twin)
        self.compiler.remember()
        return taken


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


def ignored(done: int, of: int, what: str) -> None:
    """Progress of what nobody waits for."""
