"""The kinds of metric."""

from jitney.torchserve.metrics import MetricTypes

__all__ = ["MetricTypes"]
