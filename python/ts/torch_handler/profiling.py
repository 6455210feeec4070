"""How long a handler takes: its stages as metrics, and torch's profiler around a call.

`handler: {profile: true}` in model-config.yaml makes every decorated stage report `ts_handler_<stage>` in
milliseconds; otherwise the decorator costs one dictionary lookup. The profiler is switched on by
ENABLE_TORCH_PROFILER in the environment.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from ts.metrics.metric_type_enum import MetricTypes
from ts.torch_handler.settings import need

logger = logging.getLogger(__name__)

SWITCH = "ENABLE_TORCH_PROFILER"
FOLDER = "pytorch_profiler"


def profiler_enabled() -> bool:
    """Whether the operator switched the profiler on."""
    return os.environ.get(SWITCH, "").lower() not in ("", "0", "false")


def profiled(call: Callable[[], Any], model_name: str, arguments: dict[str, Any]) -> Any:
    """Runs `call` under the profiler; the trace goes to the temporary folder, a table to the log.

    `arguments` are those of `torch.profiler.profile`; ours fill the gaps.
    """
    profiler = need("torch.profiler", SWITCH)
    given = dict(arguments)
    if "on_trace_ready" not in given:
        folder = os.path.join(tempfile.gettempdir(), FOLDER, model_name)
        given["on_trace_ready"] = profiler.tensorboard_trace_handler(folder)
        logger.info("Saving profiler trace to: %s", folder)
    given.setdefault("activities", [profiler.ProfilerActivity.CPU, *cuda_activity(profiler)])
    given.setdefault("record_shapes", True)
    with profiler.profile(**given) as profile:
        result = call()
    logger.info("%s", profile.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    return result


def cuda_activity(profiler: Any) -> list[Any]:
    """The GPU's activity, where there is one."""
    return [profiler.ProfilerActivity.CUDA] if need("torch", SWITCH).cuda.is_available() else []


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
