"""The time of a handler's stages as metrics, for models that ask for it.

`handler: {profile: true}` in model-config.yaml makes every decorated stage report
`ts_handler_<stage>` in milliseconds; otherwise the decorator costs one dictionary lookup.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from ts.metrics.metric_type_enum import MetricTypes

P = ParamSpec("P")
R = TypeVar("R")

PREFIX = "ts_handler_"


def timed(function: Callable[P, R]) -> Callable[P, R]:
    """Measures a method of a handler."""

    @functools.wraps(function)
    def measured(*args: P.args, **kwargs: P.kwargs) -> R:
        handler = args[0]
        if not wants_profile(handler):
            return function(*args, **kwargs)
        with stage(handler, function.__name__):
            return function(*args, **kwargs)

    return measured


def wants_profile(handler: Any) -> bool:
    """Whether the model asks for the time of its stages."""
    settings = getattr(getattr(handler, "context", None), "model_yaml_config", None)
    if settings is None:  # A handler that has not seen a batch yet.
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
