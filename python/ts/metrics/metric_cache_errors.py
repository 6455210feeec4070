"""The errors of the metrics cache."""

from jitney.torchserve.metrics_cache import (
    MetricsCacheIOError,
    MetricsCacheKeyError,
    MetricsCachePyYamlError,
    MetricsCacheTypeError,
    MetricsCacheValueError,
)

__all__ = [
    "MetricsCacheIOError",
    "MetricsCacheKeyError",
    "MetricsCachePyYamlError",
    "MetricsCacheTypeError",
    "MetricsCacheValueError",
]
