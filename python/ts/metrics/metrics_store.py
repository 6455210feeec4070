"""The older metrics interface: collect during a call, write all at the end with `emit_metrics`."""

from __future__ import annotations

from typing import Any

from jitney.torchserve.metrics import Dimension, Dimensions, Metric, MetricReporter, MetricTypes


class MetricsStore(MetricReporter):
    """Metrics of one batch; one that is repeated for the same request is written at once."""

    def __init__(self, request_ids: Any, model_name: str) -> None:
        self.store: list[Metric] = []
        self.request_ids = request_ids
        self.model_name = model_name
        self.cache: dict[str, Metric] = {}

    def _report(
        self, name: str, value: Any, unit: str, ids: str | None, dimensions: Dimensions, metric_type: MetricTypes
    ) -> None:
        own = [*(dimensions or ()), *self._usual(ids)]
        key = "-".join([name, unit, str(ids), *map(str, own)])
        if key in self.cache:
            self.cache[key].update(value)
            return
        method = "counter" if metric_type is MetricTypes.COUNTER else None
        metric = Metric(name, value, unit, own, ids, method, metric_type)
        self.cache[key] = metric
        self.store.append(metric)

    def _usual(self, request_id: str | None) -> list[Dimension]:
        """The dimensions that separate the model's metrics from errors."""
        if not request_id:
            return [Dimension("Level", "Error")]
        return [Dimension("ModelName", self.model_name), Dimension("Level", "Model")]
