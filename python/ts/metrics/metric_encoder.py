"""Metrics as JSON."""

from __future__ import annotations

import json
from typing import Any

from ts.metrics.dimension import Dimension
from ts.metrics.metric import Metric


class MetricEncoder(json.JSONEncoder):
    """`json.dumps(metrics, cls=MetricEncoder)`."""

    def default(self, obj: Any) -> Any:
        """A metric or a dimension as a dictionary."""
        return obj.to_dict() if isinstance(obj, (Metric, Dimension)) else super().default(obj)
