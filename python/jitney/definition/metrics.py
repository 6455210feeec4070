"""Metrics of a model's own: `jitney.Counter`, `jitney.Gauge` and `jitney.Histogram`, on the server's page.

    words = jitney.Counter("words_total", "Words seen", labels=("lang",))
    words.inc(3, lang="en")

They count in memory. A thread of the worker tells the server a few times a second what has changed, and the server
adds up the workers of a version. Outside a worker they only count, and `value` reads them.
"""

from __future__ import annotations

import bisect
import json
import logging
import re
import sys
import threading
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger(__name__)

SERIES_MAX = 1000
"""Label values that one metric may have in a worker; further ones are left out."""
METRICS_MAX = 256
EVERY_SECONDS = 0.2
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BUCKETS_MAX = 64
NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = ("jitney_", "ts_", "process_")
TAKEN = ("model_name", "model_version", "hostname", "le")

Labels = tuple[str, ...]


class _Metric:
    """A metric with all its series."""

    kind = ""

    def __init__(self, name: str, help: str = "", labels: Sequence[str] = ()) -> None:
        if not NAME.fullmatch(name) or name.startswith(RESERVED):
            raise ValueError(f"a metric's name has letters, digits, '_' and ':', and does not begin with "
                             f"{', '.join(RESERVED)}: {name!r} cannot be one")  # fmt: skip
        wrong = [label for label in labels if not LABEL.fullmatch(label) or label in TAKEN]
        if isinstance(labels, str) or wrong:
            raise ValueError(f"{name}: labels are names such as ('lang',), other than {', '.join(TAKEN)}")
        self.name = name
        self.help = " ".join(help.split())
        self.labels = tuple(labels)
        self._values: dict[Labels, Any] = {}
        self._told: dict[Labels, Any] = {}
        self._lock = threading.Lock()
        self._full = False
        _reporter.add(self)

    def value(self, **labels: object) -> Any:
        """What one series has come to in this process: a number, or of a histogram counts and sum."""
        return self._values.get(self._key(labels), self._nothing())

    def changes(self) -> list[dict[str, Any]]:
        """What has changed since the last time, for the server."""
        with self._lock:
            now = dict(self._values)
            before, self._told = self._told, now
        about = {"name": self.name, "kind": self.kind, "help": self.help}
        return [
            {**about, "labels": dict(zip(self.labels, key)), **self._change(value, before.get(key))}
            for key, value in now.items()
            if value != before.get(key)
        ]

    def _set(self, labels: dict[str, object], change: Any) -> None:
        key = self._key(labels)
        with self._lock:
            known = self._values.get(key)
            if known is None and len(self._values) >= SERIES_MAX:
                if not self._full:
                    self._full = True
                    logger.warning("metric %s has %d series; further ones are left out", self.name, SERIES_MAX)
                return
            self._values[key] = change(self._nothing() if known is None else known)
        _reporter.wake()

    def _key(self, labels: dict[str, object]) -> Labels:
        if labels.keys() != set(self.labels):
            wanted = ", ".join(self.labels) or "none"
            raise ValueError(f"metric {self.name} has these labels: {wanted}; not {', '.join(labels) or 'none'}")
        return tuple(str(labels[name]) for name in self.labels)

    def _nothing(self) -> Any:
        return 0.0

    def _change(self, value: Any, before: Any) -> dict[str, Any]:
        return {"value": value - (before or 0.0)}


class Counter(_Metric):
    """A number that only grows."""

    kind = "counter"

    def inc(self, amount: float = 1, **labels: object) -> None:
        """Adds to it."""
        if amount < 0:
            raise ValueError(f"counter {self.name} cannot sink by {-amount:g}; use a Gauge")
        self._set(labels, lambda value: value + amount)


class Gauge(_Metric):
    """A number that is set. With several workers the server shows what was set last."""

    kind = "gauge"

    def set(self, value: float, **labels: object) -> None:
        """Sets it."""
        self._set(labels, lambda _: float(value))

    def inc(self, amount: float = 1, **labels: object) -> None:
        """Adds to it."""
        self._set(labels, lambda value: value + amount)

    def dec(self, amount: float = 1, **labels: object) -> None:
        """Takes away from it."""
        self.inc(-amount, **labels)

    def _change(self, value: Any, before: Any) -> dict[str, Any]:
        return {"value": value}


class Histogram(_Metric):
    """How often a number was how large."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str = "", labels: Sequence[str] = (), buckets: Sequence[float] = BUCKETS
    ) -> None:
        self.buckets = tuple(map(float, buckets))
        if not 1 <= len(buckets) <= BUCKETS_MAX or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"{name}: buckets are up to {BUCKETS_MAX} numbers in ascending order, not {buckets!r}")
        super().__init__(name, help, labels)

    def observe(self, value: float, **labels: object) -> None:
        """Counts one number."""
        at = bisect.bisect_left(self.buckets, value)
        self._set(labels, lambda known: ((*known[0][:at], known[0][at] + 1, *known[0][at + 1 :]), known[1] + value))

    def _nothing(self) -> Any:
        return (0,) * (len(self.buckets) + 1), 0.0

    def _change(self, value: Any, before: Any) -> dict[str, Any]:
        (counts, total), (counted, summed) = value, before or self._nothing()
        more = [now - then for now, then in zip(counts, counted)]
        return {"value": total - summed, "bounds": list(self.buckets), "counts": more}


class _Reporter:
    """Tells the server what has changed, in a worker."""

    def __init__(self) -> None:
        self._metrics: list[_Metric] = []
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_worker = False

    def add(self, metric: _Metric) -> None:
        """Knows one more."""
        same = next((known for known in self._metrics if known.name == metric.name), None)
        if same is not None and (same.kind, same.labels) != (metric.kind, metric.labels):
            raise ValueError(f"there is a metric {metric.name} of another kind, or with other labels, already")
        if len(self._metrics) >= METRICS_MAX:
            raise ValueError(f"there are {METRICS_MAX} metrics already: make them once, outside of functions")
        self._metrics.append(metric)

    def wake(self) -> None:
        """Something has changed."""
        if self.is_worker and not self._changed.is_set():
            self._changed.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jitney-metrics", daemon=True)
                self._thread.start()

    def begin(self) -> None:
        """From now on there is a server to tell."""
        self.is_worker = True
        if self._metrics:
            self.wake()

    def flush(self) -> None:
        """Tells what is left to tell."""
        for metric in list(self._metrics):
            for change in metric.changes():
                sys.stdout.write(f"[METRICS]{json.dumps(change)}\n")
        sys.stdout.flush()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._changed.wait()
            pause.wait(EVERY_SECONDS)
            self._changed.clear()
            self.flush()


_reporter = _Reporter()


def begin_reporting() -> None:
    """Called by workers of definitions before they serve."""
    _reporter.begin()


def flush_metrics() -> None:
    """Called by workers of definitions when they end."""
    if _reporter.is_worker:
        _reporter.flush()
