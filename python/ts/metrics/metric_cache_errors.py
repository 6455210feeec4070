"""What can go wrong with the metrics cache."""


class MetricsCacheTypeError(Exception):
    """A value has the wrong type."""


class MetricsCacheKeyError(Exception):
    """A metric or a key of the configuration is missing."""


class MetricsCacheValueError(Exception):
    """A value or unit is not acceptable."""


class MetricsCachePyYAMLError(Exception):
    """The metrics file cannot be read as yaml."""
