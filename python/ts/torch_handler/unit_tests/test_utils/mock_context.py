"""A context for tests of handlers that run without a server, under the name TorchServe gives it.

It holds what `initialize` reads and nothing of a request; `explain` is the value of every request header.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from ts.metrics.metrics_store import MetricsStore
from ts.torch_handler.settings import need
from ts.utils.util import get_yaml_config

torch: Any = need("torch", "ts.torch_handler.unit_tests.test_utils.mock_context")


class MockContext:
    """The part of a context that loading a model needs."""

    def __init__(
        self,
        model_pt_file: str | None = "model.pt",
        model_dir: str = "ts/torch_handler/unit_tests/models/tmp",
        model_file: str | None = "model.py",
        gpu_id: str | int | None = "0",
        model_name: str = "mnist",
        model_yaml_config_file: str | None = None,
    ) -> None:
        named = {"serializedFile": model_pt_file, "modelFile": model_file}
        self.manifest: dict[str, Any] = {"model": {key: file for key, file in named.items() if file}}
        self.system_properties: dict[str, Any] = {"model_dir": model_dir}
        if gpu_id and torch.cuda.is_available():
            self.system_properties["gpu_id"] = gpu_id
        self.explain = False
        self.metrics = MetricsStore({0: str(uuid.uuid4())}, model_name)
        self.model_yaml_config: dict[str, Any] = {}
        if model_yaml_config_file:
            self.model_yaml_config = get_yaml_config(os.path.join(model_dir, model_yaml_config_file))

    def get_request_header(self, idx: int, exp: str) -> bool:
        """Whether an explanation is requested; the first request never does, as in TorchServe."""
        return bool(idx and exp and self.explain)
