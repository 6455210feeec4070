"""A metric that is declared once and updated often."""

from jitney.torchserve.metrics_cache import CachingMetric as CachingMetric
