"""One measurement and its line."""

from jitney.torchserve.metrics import LINE_PREFIX as LINE_PREFIX
from jitney.torchserve.metrics import Metric as Metric
from jitney.torchserve.metrics import write_metric as write_metric
