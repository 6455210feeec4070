"""The older metrics interface: collect during a call, write all at the end with `emit_metrics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ts.metrics.dimension import Dimension
from ts.metrics.metric import Metric
from ts.metrics.metric_type_enum import MetricTypes
from ts.metrics.unit import SIZE_UNITS, TIME_UNITS


class MetricsStore:
    """Metrics of one batch; a metric repeated for the same request is updated, not added."""

    def __init__(self, request_ids: Any, model_name: str) -> None:
        self.store: list[Metric] = []
        self.request_ids = request_ids
        self.model_name = model_name
        self.cache: dict[str, Metric] = {}

    def _ids(self, idx: int | None) -> str:
        """The id at a place of the batch, or all of them; what is no batch stands for itself."""
        ids = self.request_ids or {}
        if not isinstance(ids, dict):
            return str(ids)
        return ids[idx] if idx is not None and idx in ids else ",".join(ids.values())

    def _add_or_update(
        self, name: str, value: Any, request_id: str | None, unit: str, metric_type: MetricTypes,
        dimensions: Sequence[Dimension] | None,
    ) -> None:  # fmt: skip
        own = [*(dimensions or ()), *self._usual(request_id)]
        key = "-".join([name, unit, str(request_id), *map(str, own)])
        if key in self.cache:
            self.cache[key].update(value)
            return
        method = "counter" if metric_type is MetricTypes.COUNTER else None
        metric = Metric(name, value, unit, own, request_id, method, metric_type)
        self.cache[key] = metric
        self.store.append(metric)

    def _usual(self, request_id: str | None) -> list[Dimension]:
        """The dimensions that separate the model's metrics from errors."""
        if not request_id:
            return [Dimension("Level", "Error")]
        return [Dimension("ModelName", self.model_name), Dimension("Level", "Model")]

    def add_counter(
        self, name: str, value: float, idx: int | None = None, dimensions: Sequence[Dimension] | None = None
    ) -> None:
        """Adds to a counter."""
        self._add_or_update(name, value, self._ids(idx), "count", MetricTypes.COUNTER, dimensions)

    def add_time(
        self, name: str, value: float, idx: int | None = None, unit: str = "ms",
        dimensions: Sequence[Dimension] | None = None,
    ) -> None:  # fmt: skip
        """Records a duration in ms or s."""
        if unit not in TIME_UNITS:
            raise ValueError("the unit for a timed metric should be one of ['ms', 's']")
        self._add_or_update(name, value, self._ids(idx), unit, MetricTypes.GAUGE, dimensions)

    def add_size(
        self, name: str, value: float, idx: int | None = None, unit: str = "MB",
        dimensions: Sequence[Dimension] | None = None,
    ) -> None:  # fmt: skip
        """Records a size in MB, kB, GB or B."""
        if unit not in SIZE_UNITS:
            raise ValueError("The unit for size based metric is one of ['MB','kB', 'GB', 'B']")
        self._add_or_update(name, value, self._ids(idx), unit, MetricTypes.GAUGE, dimensions)

    def add_percent(
        self, name: str, value: float, idx: int | None = None, dimensions: Sequence[Dimension] | None = None
    ) -> None:
        """Records a percentage."""
        self._add_or_update(name, value, self._ids(idx), "percent", MetricTypes.GAUGE, dimensions)

    def add_error(self, name: str, value: Any, dimensions: Sequence[Dimension] | None = None) -> None:
        """Records an error, which belongs to no request."""
        self._add_or_update(name, value, None, "", MetricTypes.COUNTER, dimensions)

    def add_metric(
        self, name: str, value: float, unit: str, idx: int | None = None,
        dimensions: Sequence[Dimension] | None = None, metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:  # fmt: skip
        """Records any metric."""
        self._add_or_update(name, value, self._ids(idx), unit, metric_type, dimensions)
