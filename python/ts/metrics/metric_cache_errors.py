"""The errors of the metrics cache."""

from jitney.torchserve import metrics_cache

MetricsCacheIOError = metrics_cache.MetricsCacheIOError
MetricsCacheKeyError = metrics_cache.MetricsCacheKeyError
MetricsCachePyYamlError = metrics_cache.MetricsCachePyYamlError
MetricsCacheTypeError = metrics_cache.MetricsCacheTypeError
MetricsCacheValueError = metrics_cache.MetricsCacheValueError
