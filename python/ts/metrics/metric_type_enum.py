"""The kinds of metric."""

from jitney.torchserve.metrics import MetricTypes as MetricTypes
