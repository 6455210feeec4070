"""The handler that a worker runs: the transformer behind `initialize` and `handle`."""

from __future__ import annotations

import os
import sys
from typing import Any

from sagemaker_inference.transformer import Transformer


class DefaultHandlerService:
    """The user's functions as a handler."""

    def __init__(self, transformer: Any = None) -> None:
        self._service = transformer or Transformer()

    def initialize(self, context: Any) -> None:
        """Loads the model; the user's code is found below `code` first."""
        model_dir = context.system_properties.get("model_dir")
        code = os.path.join(str(model_dir), "code")
        if code not in sys.path:
            sys.path.insert(0, code)
        given = os.environ.get("PYTHONPATH")  # For processes that the user's code starts.
        os.environ["PYTHONPATH"] = f"{code}:{given}" if given else code
        self._service.validate_and_initialize(model_dir=model_dir, context=context)

    def handle(self, data: Any, context: Any) -> Any:
        """Answers the requests of a batch."""
        return self._service.transform(data, context)
