"""Metrics of applications, `ray.serve.metrics`, as those of a Jitney model: they are on the server's metrics page.

As in Ray they have the deployment and the application among their labels. Names are without the prefix `ray_`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jitney.compat.serve.context import current_replica
from jitney.definition import metrics


class RayMetric:
    """A metric with tags; made when it is first used, so that it can be sent to workers before."""

    kind: type[Any] = metrics.Counter

    def __init__(self, name: str, description: str = "", tag_keys: Sequence[str] | None = None) -> None:
        if isinstance(tag_keys, str):
            raise TypeError("tag_keys is a tuple of names")
        self.name, self._description = name, description
        self._keys = tuple(tag_keys or ())
        self._defaults: dict[str, str] = {}
        self._options: dict[str, Any] = {}
        self._made: Any = None

    def set_default_tags(self, default_tags: Mapping[str, str]) -> RayMetric:
        """Tags that hold where a call gives no others."""
        self._defaults.update(self._known(default_tags))
        return self

    def _known(self, tags: Mapping[str, str]) -> Mapping[str, str]:
        unknown = sorted(tags.keys() - set(self._keys))
        if unknown:
            raise ValueError(f"metric {self.name} has no tag {unknown[0]!r}; it has {', '.join(self._keys) or 'none'}")
        return tags

    def _metric(self) -> Any:
        if self._made is None:
            self._made = self.kind(
                self.name, self._description, (*self._keys, "deployment", "application"), **self._options
            )
        return self._made

    def _labels(self, tags: Mapping[str, str] | None) -> dict[str, str]:
        replica = current_replica()
        told = {"deployment": replica.deployment, "application": replica.app_name} if replica is not None else {}
        return {
            **dict.fromkeys((*self._keys, "deployment", "application"), ""),
            **told,
            **self._defaults,
            **self._known(tags or {}),
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": None}


class Counter(RayMetric):
    """A number that only grows."""

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Adds to it."""
        if value <= 0:
            raise ValueError(f"a counter grows by more than 0, not by {value!r}")
        self._metric().inc(value, **self._labels(tags))


class Gauge(RayMetric):
    """A number that is set."""

    kind = metrics.Gauge

    def set(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Sets it."""
        self._metric().set(value, **self._labels(tags))


class Histogram(RayMetric):
    """Observations, counted by size."""

    kind = metrics.Histogram

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, description, tag_keys)
        if boundaries:
            self._options["buckets"] = tuple(boundaries)

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Counts one."""
        self._metric().observe(value, **self._labels(tags))
