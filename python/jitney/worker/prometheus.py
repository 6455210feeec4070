"""Metrics that a model counts with `prometheus_client`, on the server's page: of all workers together.

The registry of a worker is read a few times a second, and what has changed is told to the server, which puts the
workers of a version together as `prometheus_client` does for several processes: totals are added up, and of gauges
their `multiprocess_mode` says how. A library that is imported later, by the first request, is noticed then.
"""

from __future__ import annotations

import atexit
import json
import os
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
            about: dict[str, Any] = {"help": " ".join(family.documentation.split())}
            if family.type == "gauge":
                about |= {"mode": self._mode(family.name), "pid": os.getpid()}
            series = _histograms(family) if family.type == "histogram" else _numbers(family)
            for name, kind, labels, value in series:
                before = self._told.get((name, labels))
                if value != before:
                    self._told[name, labels] = value
                    yield {**about, "name": name, "kind": kind, "labels": dict(labels), **_change(kind, value, before)}

    def _mode(self, name: str) -> str:
        """How a gauge is put together; that of a collector of one's own is shown of each process, as is the default."""
        gauge = getattr(self._registry, "_names_to_collectors", {}).get(name)
        return getattr(gauge, "_multiprocess_mode", "all")


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


class Teller:
    """Prints what has changed for the server, from the time at which the library is there."""

    def __init__(self) -> None:
        self._reader: RegistryReader | None = None
        self._pause, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def find_spec(self, name: str, *_: Any) -> None:
        """Finds no module, but is asked before each is imported for the first time: this costs nothing while no module
        is imported, where a thread that looks again would wake up every idle worker."""
        if name == LIBRARY:
            self.start()

    def start(self) -> None:
        """The library is there, or is about to be."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="jitney-prometheus", daemon=True)
            atexit.register(self.tell)  # For a model that ends its process by itself.
            self._thread.start()

    def tell(self) -> None:
        """Prints it now."""
        with self._lock:
            if self._reader is None:
                registry = getattr(sys.modules.get(LIBRARY), "REGISTRY", None)
                if registry is None:
                    return  # It is being imported, or could not be.
                self._reader = RegistryReader(registry)
            lines = [f"[METRICS]{json.dumps(change)}\n" for change in self._reader.changes()]
        if lines:
            sys.stdout.write("".join(lines))
            sys.stdout.flush()

    def end(self) -> None:
        """The worker ends: prints the rest."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._thread is not None:
            self._pause.set()
            self._thread.join()
            atexit.unregister(self.tell)
            self.tell()

    def _run(self) -> None:
        while not self._pause.wait(EVERY_SECONDS):
            self.tell()


def begin() -> Callable[[], None]:
    """Called by workers that have loaded their model: tells the server what it counts, as soon as it uses the library.
    Returns what ends that, to be called when the worker ends."""
    teller = Teller()
    if LIBRARY in sys.modules:
        teller.start()
    else:
        sys.meta_path.insert(0, teller)
    return teller.end
