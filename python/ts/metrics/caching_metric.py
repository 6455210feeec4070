"""A metric that is declared once and updated often; every update is written at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ts.metrics.dimension import Dimension
from ts.metrics.metric import Metric, write_metric
from ts.metrics.metric_type_enum import MetricTypes
from ts.metrics.unit import full_unit

logger = logging.getLogger(__name__)


class CachingMetric:
    """Name, unit, type and dimension names of a metric, without values."""

    def __init__(
        self,
        metric_name: str,
        unit: str,
        dimension_names: Sequence[str] = (),
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
        self.metric_name = metric_name
        self.unit = full_unit(unit)
        self.dimension_names = list(dimension_names)
        self.metric_type = metric_type
        self.usual: dict[str, Dimension] = {}
        """Dimensions the cache adds to every report, for updates that leave them out."""

    def add_or_update(self, value: float, dimension_values: Sequence[str] = (), request_id: str = "") -> None:
        """Reports a value with one dimension value per declared name."""
        if len(dimension_values) != len(self.dimension_names):
            logger.error(
                "metric %s: dimensions %s do not match %s",
                self.metric_name, list(dimension_values), self.dimension_names,
            )  # fmt: skip
            return
        self._write(value, request_id, list(map(Dimension, self.dimension_names, dimension_values)))

    def update(self, value: float, request_id: str = "", dimensions: Sequence[Dimension] = ()) -> None:
        """Reports a value with ready-made dimensions."""
        names = [dimension.name for dimension in dimensions]
        left_out = [name for name in self.dimension_names if name not in names and name in self.usual]
        if left_out:
            dimensions = [*dimensions, *(self.usual[name] for name in left_out)]
            names += left_out
        if sorted(names) != sorted(self.dimension_names):
            logger.error("metric %s: dimensions %s do not match %s", self.metric_name, names, self.dimension_names)
            return
        self._write(value, request_id, dimensions)

    def _write(self, value: float, request_id: str, dimensions: Sequence[Dimension]) -> None:
        negative = isinstance(value, (int, float)) and value < 0
        if negative and self.metric_type is MetricTypes.COUNTER:
            logger.error("metric %s: counter update of %s is negative", self.metric_name, value)
            return
        write_metric(Metric(self.metric_name, value, self.unit, dimensions, request_id, metric_type=self.metric_type))
