"""`context.metrics`: the declared metrics of a worker and the calls handlers report with.

With a metrics file its `model_metrics` are declared up front; whatever else a handler reports
is declared on first use, and the server decides whether to show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

from ts.metrics.caching_metric import CachingMetric
from ts.metrics.dimension import Dimension
from ts.metrics.metric_cache_errors import MetricsCacheKeyError, MetricsCachePyYAMLError, MetricsCacheValueError
from ts.metrics.metric_type_enum import MetricTypes
from ts.metrics.unit import SIZE_UNITS, TIME_UNITS
from ts.utils.util import get_yaml_config

RequestIds = Union[dict[int, str], None]
Dimensions = Union[Sequence[Dimension], None]
Index = Union[int, Iterable[int], None]


class MetricsCacheYamlImpl:
    """Metrics by type and name."""

    def __init__(self, config_file_path: str | None = None) -> None:
        self.config_file_path = config_file_path
        self.cache: dict[MetricTypes, dict[str, CachingMetric]] = {kind: {} for kind in MetricTypes}
        self.model_name = ""
        self._request_ids: RequestIds | Callable[[], RequestIds] = None

    @property
    def request_ids(self) -> RequestIds:
        """Request ids by position in the batch, read when a metric is reported."""
        return self._request_ids() if callable(self._request_ids) else self._request_ids

    @request_ids.setter
    def request_ids(self, request_ids: RequestIds) -> None:
        self._request_ids = request_ids

    def set_request_ids(self, request_ids: RequestIds | Callable[[], RequestIds]) -> None:
        """Sets the ids reported with a metric, or a function that knows the current ones."""
        self._request_ids = request_ids

    def set_model_name(self, model_name: str) -> None:
        """Sets the value of the ModelName dimension."""
        self.model_name = model_name

    def initialize_cache(self) -> None:
        """Declares the `model_metrics` of the metrics file, if there is one."""
        if self.config_file_path is None:
            return
        try:
            config = get_yaml_config(self.config_file_path)
        except (OSError, ImportError):
            raise
        except Exception as error:
            raise MetricsCachePyYAMLError(f"cannot read {self.config_file_path}: {error}") from error
        if "model_metrics" not in config:
            raise MetricsCacheKeyError("'model_metrics' is missing in the metrics file")
        if not config["model_metrics"]:
            raise MetricsCacheValueError("'model_metrics' is empty in the metrics file")
        self.declare(config["model_metrics"])

    def declare(self, model_metrics: dict[str, list[dict[str, Any]]]) -> None:
        """Declares metrics by type, in the form of a metrics file's `model_metrics`."""
        for kind, metrics in model_metrics.items():
            self._declare_all(kind, metrics)

    def _declare_all(self, kind: str, metrics: list[dict[str, Any]]) -> None:
        try:
            metric_type = MetricTypes(kind)
        except ValueError:
            raise MetricsCacheKeyError(f"unknown metric type {kind!r}") from None
        for metric in metrics:
            missing = {"name", "unit", "dimensions"} - metric.keys()
            if missing:
                raise MetricsCacheKeyError(f"metric {metric} lacks {sorted(missing)}")
            self.add_metric_to_cache(metric["name"], metric["unit"], metric["dimensions"], metric_type)

    def cache_keys(self) -> list[MetricTypes]:
        """The metric types the cache knows."""
        return list(self.cache)

    def add_metric_to_cache(
        self, metric_name: str, unit: str, dimension_names: Sequence[str] = (),
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> CachingMetric:  # fmt: skip
        """Declares a metric and returns it."""
        metric = CachingMetric(metric_name, unit, dimension_names, metric_type)
        self.cache[metric_type][metric_name] = metric
        return metric

    def get_metric(self, metric_name: str, metric_type: MetricTypes = MetricTypes.COUNTER) -> CachingMetric:
        """Returns a declared metric."""
        try:
            return self.cache[metric_type][metric_name]
        except KeyError:
            raise MetricsCacheKeyError(f"no metric {metric_name!r} of type {metric_type}") from None

    def _ids(self, idx: Index) -> str:
        ids = self.request_ids or {}
        if isinstance(idx, int):
            return ids[idx] if idx in ids else ",".join(ids.values())
        return ",".join(ids.values() if idx is None else (ids[i] for i in idx if i in ids))

    def _report(
        self, name: str, value: float, unit: str, ids: str, dimensions: Dimensions, metric_type: MetricTypes,
        level: str = "Model",
    ) -> None:  # fmt: skip
        given = list(dimensions or ())
        usual = [Dimension("ModelName", self.model_name), Dimension("Level", level)]
        named = {dimension.name for dimension in given}
        all_dimensions = given + [dimension for dimension in usual if dimension.name not in named]
        metric = self.cache[metric_type].get(name)
        if metric is None:
            names = [dimension.name for dimension in all_dimensions]
            metric = self.add_metric_to_cache(name, unit, names, metric_type)
        metric.update(value, ids, all_dimensions)

    def add_metric(
        self, name: str, value: float, unit: str, idx: Index = None, dimensions: Dimensions = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:  # fmt: skip
        """Reports any metric."""
        self._report(name, value, unit, self._ids(idx), dimensions, metric_type)

    def add_counter(self, name: str, value: float, idx: Index = None, dimensions: Dimensions = None) -> None:
        """Adds to a counter."""
        self._report(name, value, "count", self._ids(idx), dimensions, MetricTypes.COUNTER)

    def add_time(
        self, name: str, value: float, idx: Index = None, unit: str = "ms", dimensions: Dimensions = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:  # fmt: skip
        """Reports a duration in ms or s."""
        check_unit(unit, TIME_UNITS)
        self._report(name, value, unit, self._ids(idx), dimensions, metric_type)

    def add_size(
        self, name: str, value: float, idx: Index = None, unit: str = "MB", dimensions: Dimensions = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:  # fmt: skip
        """Reports a size in MB, kB, GB or B."""
        check_unit(unit, SIZE_UNITS)
        self._report(name, value, unit, self._ids(idx), dimensions, metric_type)

    def add_percent(
        self, name: str, value: float, idx: Index = None, dimensions: Dimensions = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:  # fmt: skip
        """Reports a percentage."""
        self._report(name, value, "percent", self._ids(idx), dimensions, metric_type)

    def add_error(self, name: str, value: float, dimensions: Dimensions = None) -> None:
        """Reports an error, which belongs to no request."""
        self._report(name, value, "", "", dimensions, MetricTypes.COUNTER, level="Error")


def check_unit(unit: str, allowed: frozenset[str]) -> None:
    """Raises for a unit that does not fit the kind of metric."""
    if unit not in allowed:
        raise MetricsCacheValueError(f"unit {unit!r} is not one of {sorted(allowed)}")
