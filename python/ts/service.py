"""A model with its entry point and context, and the way metrics leave the process.

Jitney's worker keeps this pair itself; the class exists for code written against TorchServe.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import ts
from ts.context import Context
from ts.metrics.metric import Metric, write_metric
from ts.utils.util import PredictionException

__all__ = ["PREDICTION_METRIC", "PredictionException", "Service", "emit_metrics"]

PREDICTION_METRIC = "PredictionTime"


class Service:
    """A handler's entry point together with the context it is called with."""

    def __init__(
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any],
        entry_point: Callable[[Any, Context], Any] | None,
        gpu: int | None,
        batch_size: int,
        limit_max_image_pixels: bool = True,
        metrics_cache: Any = None,
        model_yaml_config: dict[str, Any] | None = None,
    ) -> None:
        self._entry_point = entry_point
        self._context = Context(
            model_name,
            model_dir,
            manifest,
            batch_size,
            gpu,
            ts.__version__,
            limit_max_image_pixels,
            metrics_cache,
            model_yaml_config,
        )

    @property
    def context(self) -> Context:
        """The context of this service."""
        return self._context

    def handle(self, data: list[dict[str, Any]]) -> Any:
        """Calls the entry point with rows and the context."""
        if self._entry_point is None:
            raise RuntimeError("the service has no entry point")
        return self._entry_point(data, self._context)


def emit_metrics(metrics: Iterable[Metric] | None) -> None:
    """Writes metrics to stdout, one line each, where the server collects them."""
    for metric in metrics or ():
        write_metric(metric)
