"""One measurement and its line, which TorchServe and Jitney read from a worker's stdout.

`[METRICS]name.unit:value|#dimensions|#type:TYPE|#hostname:host,epoch[,request ids]`

As in TorchServe the line is a message of the root logger, so that tests and programs find it where they look for
it. Jitney's workers write it themselves (`past_logging`): whatever a handler does to logging, its metrics arrive.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import logging
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

LINE_PREFIX = "[METRICS]"


class MetricTypes(enum.Enum):
    """Counter, gauge or histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Units:
    """Known units by short name."""

    units: dict[str, str] = {  # noqa: RUF012 - TorchServe's attribute, read by user code
        "ms": "Milliseconds",
        "s": "Seconds",
        "percent": "Percent",
        "count": "Count",
        "MB": "Megabytes",
        "GB": "Gigabytes",
        "kB": "Kilobytes",
        "B": "Bytes",
        "": "unit",
    }


TIME_UNITS = frozenset(("ms", "s"))
SIZE_UNITS = frozenset(("MB", "kB", "GB", "B"))


def full_unit(unit: str | None) -> str:
    """The full name of a unit; unknown ones are kept as they are."""
    return Units.units.get(unit or "", unit or "")


class Dimension:
    """A name and a value."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"

    def to_dict(self) -> dict[str, Any]:
        """The dimension as a dictionary."""
        return {"Name": self.name, "Value": self.value}


class Metric:
    """A named value with unit, dimensions and the requests it belongs to."""

    def __init__(
        self,
        name: str,
        value: float,
        unit: str,
        dimensions: Sequence[Dimension] = (),
        request_id: str | None = None,
        metric_method: str | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
        self.name = name
        self.value = value
        self.unit = full_unit(unit)
        self.dimensions = list(dimensions)
        self.request_id = request_id
        self.metric_method = metric_method
        self.metric_type = metric_type

    def update(self, value: float) -> None:
        """Writes a line with another value at once; the first one is written with `emit_metrics`."""
        line = copy.copy(self)
        line.value = value
        write_metric(line)

    def reset(self) -> None:
        """Writes a line with the value 0."""
        self.update(0)

    def __str__(self) -> str:
        dimensions = ",".join(map(str, self.dimensions))
        ids = f",{self.request_id}" if self.request_id else ""
        return (
            f"{self.name}.{self.unit}:{self.value}|#{dimensions}|#type:{self.metric_type.name}"
            f"|#hostname:{socket.gethostname()},{int(time.time())}{ids}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The metric as a dictionary."""
        return {
            "MetricName": self.name,
            "Value": self.value,
            "Unit": self.unit,
            "Dimensions": [dimension.to_dict() for dimension in self.dimensions],
            "Type": self.metric_type.name,
            "Timestamp": int(time.time()),
            "HostName": socket.gethostname(),
            "RequestId": self.request_id,
        }


Dimensions = Sequence[Dimension] | None
Index = Any
"""A position in the batch or several; anything else stands for the whole batch."""


class MetricReporter:
    """The calls by which handlers report metrics; subclasses implement `_report`."""

    request_ids: Any
    names_requests = True
    """Whether reports name the requests they are about."""
    unit_error: type[ValueError] = ValueError

    def _report(
        self, name: str, value: Any, unit: str, ids: str | None, dimensions: Dimensions, metric_type: MetricTypes
    ) -> None:
        raise NotImplementedError

    def _ids(self, idx: Index) -> str | None:
        if not self.names_requests:
            return ""
        ids = self.request_ids or {}
        if not isinstance(ids, dict):
            return str(ids)
        if isinstance(idx, (list, tuple, range)):
            return ",".join(ids[position] for position in idx if position in ids)
        return ids[idx] if idx is not None and idx in ids else ",".join(ids.values())

    def add_metric(
        self, name: str, value: float, unit: str, idx: Index = None, dimensions: Dimensions = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:  # fmt: skip
        """Reports any metric."""
        self._report(name, value, unit, self._ids(idx), dimensions, metric_type)

    def add_counter(self, name: str, value: float, idx: Index = None, dimensions: Dimensions = None) -> None:
        """Adds to a counter."""
        self._report(name, value, "count", self._ids(idx), dimensions, MetricTypes.COUNTER)

    def add_time(
        self, name: str, value: float, idx: Index = None, unit: str = "ms", dimensions: Dimensions = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:  # fmt: skip
        """Reports a duration in ms or s."""
        if unit not in TIME_UNITS:
            raise self.unit_error("the unit for a timed metric should be one of ['ms', 's']")
        self._report(name, value, unit, self._ids(idx), dimensions, metric_type)

    def add_size(
        self, name: str, value: float, idx: Index = None, unit: str = "MB", dimensions: Dimensions = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:  # fmt: skip
        """Reports a size in MB, kB, GB or B."""
        if unit not in SIZE_UNITS:
            raise self.unit_error("The unit for size based metric is one of ['MB','kB', 'GB', 'B']")
        self._report(name, value, unit, self._ids(idx), dimensions, metric_type)

    def add_percent(
        self, name: str, value: float, idx: Index = None, dimensions: Dimensions = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:  # fmt: skip
        """Reports a percentage."""
        self._report(name, value, "percent", self._ids(idx), dimensions, metric_type)

    def add_error(self, name: str, value: float, dimensions: Dimensions = None) -> None:
        """Reports an error, which belongs to no request."""
        self._report(name, value, "", None, dimensions, MetricTypes.COUNTER)


_past_logging = False


def past_logging() -> None:
    """From now on lines of this process go to stdout directly, each in one piece."""
    global _past_logging
    _past_logging = True


_muted = False


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Inside, no lines are written: what is measured there is no user's."""
    global _muted
    _muted = True
    try:
        yield
    finally:
        _muted = False


def write_metric(metric: Any) -> None:
    """Writes a metric's line."""
    if _muted:
        return
    if _past_logging:
        sys.stdout.write(f"{LINE_PREFIX}{metric}\n")
    else:
        logging.info("%s%s", LINE_PREFIX, metric)
