"""The time of a handler's stages as metrics, for models that ask for it.

`handler: {profile: true}` in model-config.yaml makes every decorated stage report
`ts_handler_<stage>` in milliseconds; otherwise the decorator costs one dictionary lookup.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable, TypeVar

from ts.metrics.metric_type_enum import MetricTypes

F = TypeVar("F", bound=Callable[..., Any])

PREFIX = "ts_handler_"


def timed(function: F) -> F:
    """Measures a method of a handler."""

    @functools.wraps(function)
    def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not wants_profile(self):
            return function(self, *args, **kwargs)
        with stage(self, function.__name__):
            return function(self, *args, **kwargs)

    return measured  # type: ignore[return-value]


def wants_profile(handler: Any) -> bool:
    """Whether the model asks for the time of its stages."""
    settings = getattr(getattr(handler, "context", None), "model_yaml_config", None)
    if settings is None:  # The first stage of a handler that has not been asked anything yet.
        settings = getattr(handler, "model_yaml_config", None)
    section = (settings or {}).get("handler")
    return isinstance(section, dict) and bool(section.get("profile"))


@contextlib.contextmanager
def stage(handler: Any, name: str) -> Iterator[None]:
    """Measures what happens inside, if the model asks for it."""
    started = time.perf_counter()
    yield
    if wants_profile(handler):
        wait_for_device(handler)
        report(handler, name, (time.perf_counter() - started) * 1000)


def wait_for_device(handler: Any) -> None:
    """A GPU works on after a call returned; its time belongs to the stage that caused it."""
    device = getattr(handler, "device", None)
    if getattr(device, "type", "cpu") == "cuda":
        sys.modules["torch"].cuda.synchronize(device)


def report(handler: Any, stage: str, milliseconds: float) -> None:
    """Writes the metric of one stage."""
    metrics = getattr(getattr(handler, "context", None), "metrics", None)
    if metrics is not None:
        metrics.add_metric(PREFIX + stage, milliseconds, "ms", metric_type=MetricTypes.GAUGE)
