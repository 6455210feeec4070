"""Metrics that a model counts with `prometheus_client`, on the server's page: of all workers together.

The registry of a worker is read a few times a second, and what has changed is told to the server, which adds up the
workers of a version as `prometheus_client` does for several processes. Of a gauge the value that came last stands.
"""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

LIBRARY = "prometheus_client"
EVERY_SECONDS = 0.5
NOT_OF_MODELS = ("process_", "python_", "jitney_", "ts_")
"""Families that tell about the process, or have the server's names."""
TOTALS = {"counter": ("_total",), "summary": ("_count", "_sum"), "gaugehistogram": ()}
"""The samples of a family that only grow, by the ends of their names; the others are levels."""

Labels = tuple[tuple[str, str], ...]


class RegistryReader:
    """Reads a registry, and knows what it has told."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self._told: dict[tuple[str, Labels], Any] = {}

    def changes(self) -> Iterator[dict[str, Any]]:
        """What has changed since the last time, for the server."""
        for family in self._registry.collect():
            if family.name.startswith(NOT_OF_MODELS):
                continue
            about = {"help": " ".join(family.documentation.split())}
            series = _histograms(family) if family.type == "histogram" else _numbers(family)
            for name, kind, labels, value in series:
                before = self._told.get((name, labels))
                if value != before:
                    self._told[name, labels] = value
                    yield {**about, "name": name, "kind": kind, "labels": dict(labels), **_change(kind, value, before)}


def _numbers(family: Any) -> Iterator[tuple[str, str, Labels, Any]]:
    """The samples of counters, gauges and summaries; the time at which one was made is none of them."""
    ends = TOTALS.get(family.type, ("",))
    kind = "counter" if family.type in TOTALS else "gauge"
    for sample in family.samples:
        if any(sample.name == family.name + end for end in ends):
            yield sample.name, kind, tuple(sorted(sample.labels.items())), float(sample.value)


def _histograms(family: Any) -> Iterator[tuple[str, str, Labels, Any]]:
    """Histograms by their labels: bounds, counts of single buckets, and the sum."""
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    sums: dict[Labels, float] = {}
    for sample in family.samples:
        labels = tuple(sorted((name, one) for name, one in sample.labels.items() if name != "le"))
        if sample.name == f"{family.name}_bucket":
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name == f"{family.name}_sum":
            sums[labels] = sample.value
    for labels, cumulative in buckets.items():
        bounds, totals = zip(*sorted(cumulative))
        counts = tuple(int(now - before) for now, before in zip(totals, (0, *totals)))
        yield family.name, "histogram", labels, (bounds[:-1], counts, sums.get(labels, 0.0))


def _change(kind: str, value: Any, before: Any) -> dict[str, Any]:
    if kind == "gauge":
        return {"value": value}
    if kind == "counter":
        return {"value": value - (before or 0.0)}
    bounds, counts, total = value
    _, counted, summed = before or (bounds, (0,) * len(counts), 0.0)
    return {"value": total - summed, "bounds": bounds, "counts": [now - then for now, then in zip(counts, counted)]}


def begin() -> Callable[[], None] | None:
    """Called by workers that have loaded their model: tells the server what it counts, if it uses the library. Returns
    what ends that, to be called when the worker ends."""
    library: Any = sys.modules.get(LIBRARY)
    if library is None:
        return None
    reader, pause, lock = RegistryReader(library.REGISTRY), threading.Event(), threading.Lock()

    def tell() -> None:
        with lock:
            lines = [f"[METRICS]{json.dumps(change)}\n" for change in reader.changes()]
        if lines:
            sys.stdout.write("".join(lines))
            sys.stdout.flush()

    def run() -> None:
        while not pause.wait(EVERY_SECONDS):
            tell()

    thread = threading.Thread(target=run, name="jitney-prometheus", daemon=True)

    def end() -> None:
        pause.set()
        thread.join()
        atexit.unregister(tell)
        tell()

    atexit.register(tell)  # For a model that ends its process by itself.
    thread.start()
    return end
