"""The errors of the metrics cache."""

from jitney.torchserve.metrics_cache import (
    MetricsCacheIOError as MetricsCacheIOError,
)
from jitney.torchserve.metrics_cache import (
    MetricsCacheKeyError as MetricsCacheKeyError,
)
from jitney.torchserve.metrics_cache import (
    MetricsCachePyYamlError as MetricsCachePyYamlError,
)
from jitney.torchserve.metrics_cache import (
    MetricsCacheTypeError as MetricsCacheTypeError,
)
from jitney.torchserve.metrics_cache import (
    MetricsCacheValueError as MetricsCacheValueError,
)
