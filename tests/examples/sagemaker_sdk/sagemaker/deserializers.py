"""How answers are read."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np


class BytesDeserializer:
    """As they come."""

    ACCEPT = "*/*"

    def deserialize(self, body: bytes) -> Any:
        """The value."""
        return body


class CSVDeserializer:
    """Lines as rows."""

    ACCEPT = "text/csv"

    def deserialize(self, body: bytes) -> Any:
        """The value."""
        return list(csv.reader(body.decode().splitlines()))


class JSONDeserializer:
    """One document."""

    ACCEPT = "application/json"

    def deserialize(self, body: bytes) -> Any:
        """The value."""
        return json.loads(body)


class NumpyDeserializer:
    """An array."""

    ACCEPT = "application/x-npy"

    def deserialize(self, body: bytes) -> Any:
        """The value."""
        return np.load(io.BytesIO(body), allow_pickle=False)
