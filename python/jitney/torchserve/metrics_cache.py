"""`context.metrics`: the declared metrics of a worker and the calls handlers report with.

With a metrics file its `model_metrics` are declared up front; whatever else a handler reports
is declared on first use, and the server decides whether to show it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jitney.torchserve.loading import get_yaml_config
from jitney.torchserve.metrics import (
    Dimension,
    Dimensions,
    Index,
    Metric,
    MetricReporter,
    MetricTypes,
    full_unit,
    write_metric,
)

logger = logging.getLogger(__name__)

RequestIds = dict[int, str] | None
NO_FILE = ""


class MetricsCacheTypeError(TypeError):
    """A value has the wrong type."""


class MetricsCacheKeyError(KeyError):
    """A metric or a key of the configuration is missing."""


class MetricsCacheValueError(ValueError):
    """A value or unit is not acceptable."""


class MetricsCacheIOError(OSError):
    """The metrics file cannot be opened."""


class MetricsCachePyYamlError(Exception):
    """The metrics file cannot be read as yaml."""


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


class MetricsCacheYamlImpl(MetricReporter):
    """Metrics by type and name."""

    unit_error = MetricsCacheValueError

    def __init__(self, config_file_path: str = NO_FILE) -> None:
        self.config_file_path = config_file_path
        self._parsed_file = {} if config_file_path == NO_FILE else read_metrics_file(config_file_path)
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

    def _ids(self, idx: Index) -> str | None:
        return None if self._request_ids is None else super()._ids(idx)

    def set_model_name(self, model_name: str) -> None:
        """Sets the value of the ModelName dimension."""
        self.model_name = model_name

    def initialize_cache(self) -> None:
        """Declares the `model_metrics` of the metrics file, if there is one."""
        if self.config_file_path == NO_FILE:
            return
        section = self._parse_metrics_section()
        if not section:
            raise MetricsCacheValueError("Missing `model_metrics` specification")
        missing = next(missing_keys(section), None)
        if missing is not None:
            raise MetricsCacheKeyError(f"Key not found in cache spec: {missing!r}")
        self.declare(section)

    def _parse_metrics_section(self, key: str | None = "model_metrics") -> dict[str, Any] | None:
        """A section of the metrics file; None if it is empty."""
        if key not in self._parsed_file:
            raise MetricsCacheKeyError(f"'{key}' key not found in yaml file: {key!r}")
        section: dict[str, Any] | None = self._parsed_file[key]
        return section

    def declare(self, model_metrics: dict[str, list[dict[str, Any]]]) -> None:
        """Declares metrics by type, in the form of a metrics file's `model_metrics`."""
        for kind, metrics in model_metrics.items():
            self._declare_all(kind, metrics)

    def _declare_all(self, kind: str, metrics: list[dict[str, Any]]) -> None:
        try:
            metric_type = MetricTypes(kind)
        except ValueError:
            raise MetricsCacheKeyError(f"unknown metric type {kind!r}") from None
        for metric in metrics or ():
            self.add_metric_to_cache(metric["name"], metric["unit"], metric.get("dimensions") or [], metric_type)

    def cache_keys(self) -> list[str]:
        """The metrics the cache knows, each as `type:name`."""
        return [f"{kind.value}:{name}" for kind, metrics in self.cache.items() for name in metrics]

    def add_metric_to_cache(
        self, metric_name: str, unit: str, dimension_names: Sequence[str] = (),
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> CachingMetric:  # fmt: skip
        """Declares a metric and returns it."""
        check_type(metric_name, str, "`metric_name` must be a str")
        check_type(unit, str, "`unit` must be a str")
        check_type(dimension_names, (list, tuple), "`dimension_names` should be a list of dimension name strings")
        check_type(metric_type, MetricTypes, WRONG_METRIC_TYPE)
        metric = CachingMetric(metric_name, unit, dimension_names, metric_type)
        self.cache[metric_type][metric_name] = metric
        return metric

    def get_metric(self, metric_name: str, metric_type: MetricTypes = MetricTypes.COUNTER) -> CachingMetric:
        """Returns a declared metric."""
        check_type(metric_name, str, "`metric_name` must be a str")
        check_type(metric_type, MetricTypes, WRONG_METRIC_TYPE)
        metric = self.cache[metric_type].get(metric_name)
        if metric is None:
            raise MetricsCacheKeyError(f"Metric of type '{metric_type}' and name '{metric_name}' doesn't exist")
        return metric

    def _report(
        self, name: str, value: float, unit: str, ids: str | None, dimensions: Dimensions, metric_type: MetricTypes
    ) -> None:
        given = list(dimensions or ())
        names = [dimension.name for dimension in given]
        usual = [dimension for dimension in self._usual(ids) if dimension.name not in names]
        metric = self.cache[metric_type].get(name)
        if metric is None:
            names += [dimension.name for dimension in usual]
            metric = self.add_metric_to_cache(name, unit, names, metric_type)
        metric.usual = {dimension.name: dimension for dimension in usual}
        metric.update(value, ids or "", [*given, *usual])

    def _usual(self, ids: str | None) -> list[Dimension]:
        """The dimensions of every report unless the handler gives its own."""
        level = Dimension("Level", "Error" if ids is None else "Model")
        return [Dimension("ModelName", self.model_name), level] if self.model_name else [level]


WRONG_METRIC_TYPE = "`metric_type` must be a MetricTypes enum"


def check_type(value: Any, kind: Any, message: str) -> None:
    """Raises for a value of the wrong type."""
    if not isinstance(value, kind):
        raise MetricsCacheTypeError(message)


def missing_keys(section: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """What metrics of a metrics file lack."""
    for metrics in section.values():
        for metric in metrics or ():
            yield from (key for key in ("name", "unit") if key not in metric)


def read_metrics_file(path: str) -> dict[str, Any]:
    """The sections of a metrics file."""
    try:
        os.stat(path)
    except TypeError as error:
        raise MetricsCacheTypeError(str(error)) from error
    except OSError as error:
        raise MetricsCacheIOError(str(error)) from error
    try:
        return get_yaml_config(path)
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise MetricsCachePyYamlError(f"Error parsing file {path}: {error}") from error
