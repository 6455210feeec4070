"""torch's profiler around a handler's call, switched on by ENABLE_TORCH_PROFILER in the environment."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from typing import Any

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
