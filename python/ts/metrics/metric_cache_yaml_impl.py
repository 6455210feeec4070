"""`context.metrics`: the declared metrics of a worker."""

from jitney.torchserve.metrics_cache import NO_FILE, MetricsCacheYamlImpl

__all__ = ["NO_FILE", "MetricsCacheYamlImpl"]
