"""`context.metrics`: the declared metrics of a worker."""

from jitney.torchserve.metrics_cache import NO_FILE as NO_FILE
from jitney.torchserve.metrics_cache import MetricsCacheYamlImpl as MetricsCacheYamlImpl
