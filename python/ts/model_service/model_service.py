"""`ModelService` and `SingleNodeService`, which old model code still derives from.

New models derive from `ts.torch_handler.base_handler.BaseHandler`, or from nothing at all.
"""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from typing import Any

logger = logging.getLogger(__name__)


class ModelService(ABC):
    """What a service knows of its model, and what it must be able to do."""

    def __init__(self, model_name: str, model_dir: str, manifest: dict[str, Any], gpu: int | None = None) -> None:
        self.model_name = model_name
        self.model_dir = model_dir
        self.manifest = manifest
        self.gpu = gpu
        self.context: Any = None
        self._signature: dict[str, Any] | None = None

    def initialize(self, context: Any) -> None:
        """Takes the context, and the signature the manifest names if that file is there."""
        self.context = context
        self.model_name = context.model_name
        self.manifest = context.manifest
        self.model_dir = context.system_properties["model_dir"]
        self.gpu = context.system_properties["gpu_id"]
        name = (self.manifest.get("model") or self.manifest.get("Model") or {}).get("Signature")
        path = os.path.join(self.model_dir, name) if name else ""
        if path and os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                self._signature = json.load(file)

    @abstractmethod
    def inference(self, data: Any) -> Any:
        """Answers one request."""

    @abstractmethod
    def ping(self) -> Any:
        """Whether the service is alive."""

    @property
    def signature(self) -> dict[str, Any] | None:
        """Names and shapes of the model's inputs and outputs, if the archive has them."""
        return self._signature


class SingleNodeService(ModelService):
    """A service in one process: prepare, infer, finish."""

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        """Answers a batch, request after request; one that fails gets the text of its error."""
        return [self._answer(list(row.values())) for row in data]

    def _answer(self, values: list[Any]) -> Any:
        try:
            return self.inference(values)
        except Exception as error:
            logger.exception("inference failed")
            return f"Prediction error: {error}"

    def inference(self, data: Any) -> Any:
        """The three steps for one request."""
        return self._postprocess(self._inference(self._preprocess(data)))

    def ping(self) -> Any:
        """Always None: a process that answers is alive."""
        return None

    @abstractmethod
    def _inference(self, data: Any) -> Any:
        """The model itself."""

    def _preprocess(self, data: Any) -> Any:
        """From a request's values to the model's input; as they are unless overridden."""
        return data

    def _postprocess(self, data: Any) -> Any:
        """From the model's output to the answer; as it is unless overridden."""
        return data
