"""The kinds of metric a handler can report."""

from __future__ import annotations

import enum


class MetricTypes(enum.Enum):
    """Counter, gauge or histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
