"""What can go wrong with the metrics cache."""


class MetricsCacheTypeError(TypeError):
    """A value has the wrong type."""


class MetricsCacheKeyError(KeyError):
    """A metric or a key of the configuration is missing."""


class MetricsCacheValueError(ValueError):
    """A value or unit is not acceptable."""


class MetricsCacheIOError(OSError):
    """The metrics file cannot be opened."""


class MetricsCachePyYamlError(Exception):
    """The metrics file cannot be read as yaml."""
