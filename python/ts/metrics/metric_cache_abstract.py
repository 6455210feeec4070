"""The kind of object that `context.metrics` is."""

from jitney.torchserve.metrics_cache import MetricsCacheYamlImpl as MetricCacheAbstract

__all__ = ["MetricCacheAbstract"]
