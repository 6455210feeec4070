"""How bodies are written."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np


class CSVSerializer:
    """Rows as lines."""

    CONTENT_TYPE = "text/csv"

    def serialize(self, data: Any) -> bytes:
        """The body."""
        return "\n".join(",".join(map(str, row)) for row in data).encode()


class JSONSerializer:
    """Arrays as lists."""

    CONTENT_TYPE = "application/json"

    def serialize(self, data: Any) -> bytes:
        """The body."""
        return json.dumps(data.tolist() if hasattr(data, "tolist") else data).encode()


class NumpySerializer:
    """Anything that can be an array."""

    CONTENT_TYPE = "application/x-npy"

    def serialize(self, data: Any) -> bytes:
        """The body."""
        file = io.BytesIO()
        np.save(file, np.asarray(data))
        return file.getvalue()
