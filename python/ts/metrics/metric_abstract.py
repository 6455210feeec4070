"""The kind of metric that is declared once and updated often."""

from jitney.torchserve.metrics_cache import CachingMetric as MetricAbstract

__all__ = ["MetricAbstract"]
