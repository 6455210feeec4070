"""A dimension of a metric."""

from jitney.torchserve.metrics import Dimension as Dimension
