"""Loads a `model.py` of the Python backend and runs its requests."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import inspect
import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from jitney.triton import backend_utils
from jitney.triton.messages import InferenceRequest, InferenceResponse, TritonModelException

MODULES = ("triton_python_backend_utils", "c_python_backend_utils")
CLASS = "TritonPythonModel"


def model_class(file: str) -> Any:
    """The class that a `model.py` has."""
    for module in MODULES:
        sys.modules[module] = backend_utils
    found = getattr(_module(file), CLASS, None)
    if found is None:
        raise TritonModelException(f"{file} has no class {CLASS}")
    return found


def completed(made_of: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with what the class adds to it."""
    complete = getattr(made_of, "auto_complete_config", None)
    return config if complete is None else complete(backend_utils.ModelConfig(copy.deepcopy(config))).as_dict()


class TritonModel:
    """An instance of the model."""

    def __init__(self, file: str, config: dict[str, Any], args: dict[str, str]) -> None:
        made_of = model_class(file)
        self.config = config = completed(made_of, config)
        self.decoupled = backend_utils.using_decoupled_model_transaction_policy(config)
        self._instance = made_of()
        if hasattr(self._instance, "initialize"):
            self._run(self._instance.initialize({**args, "model_config": json.dumps(config)}))

    def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[InferenceResponse]:
        """The responses to these requests; none of a decoupled model, whose responses are sent."""
        responses = self._run(self._instance.execute(list(requests)))
        if self.decoupled:
            return ()
        if not isinstance(responses, (list, tuple)) or len(responses) != len(requests):
            told = len(responses) if isinstance(responses, (list, tuple)) else type(responses).__name__
            raise TritonModelException(
                f"execute returned {told} for {len(requests)} requests; it must return a list of as many responses"
            )
        return responses

    def close(self) -> None:
        """Ends the instance."""
        if hasattr(self._instance, "finalize"):
            self._run(self._instance.finalize())

    def _run(self, returned: Any) -> Any:
        """What a method returned; that of a coroutine once it has run, on a loop that lives as long as the model."""
        return (
            asyncio.run_coroutine_threadsafe(returned, _loop()).result() if inspect.iscoroutine(returned) else returned
        )


_loops: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of coroutines; tasks that a model leaves behind go on in it."""
    if not _loops:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True, name="triton-loop").start()
        _loops.append(loop)
    return _loops[0]


def _module(file: str) -> Any:
    """The module of a file; others beside it can be imported."""
    sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_file_location("model", file)
    if spec is None or spec.loader is None:
        raise TritonModelException(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["model"] = module
    spec.loader.exec_module(module)
    return module
