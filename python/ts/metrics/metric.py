"""One measurement and its line."""

from jitney.torchserve.metrics import LINE_PREFIX, Metric, past_logging, write_metric

__all__ = ["LINE_PREFIX", "Metric", "past_logging", "write_metric"]
