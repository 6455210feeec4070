"""A dimension of a metric."""

from jitney.torchserve.metrics import Dimension

__all__ = ["Dimension"]
