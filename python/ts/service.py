"""A model with its entry point and context, for `ts.model_service_worker` (see `ts.protocol`); and `emit_metrics`."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ts
from jitney.torchserve.failures import BatchFailure, PredictionException, check_outputs, failure_of
from ts.context import Context, RequestProcessor
from ts.metrics.metric import Metric, write_metric
from ts.metrics.metric_type_enum import MetricTypes
from ts.protocol.otf_message_handler import create_predict_response

__all__ = ["PREDICTION_METRIC", "PredictionException", "Service", "emit_metrics"]

logger = logging.getLogger(__name__)

PREDICTION_METRIC = "PredictionTime"
PREDICTION_SUCCESS = "Prediction success"

FAILURE_STATUS = {"memory": 507}
"""Statuses of failed batches by cause; 503 for all others, unless the handler chose one."""

Batch = Sequence["dict[str, Any]"]
Inference = tuple["list[RequestProcessor]", "list[dict[str, Any]]", "dict[int, str]"]


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
            model_name, model_dir, manifest, batch_size, gpu, ts.__version__,
            limit_max_image_pixels, metrics_cache, model_yaml_config,
        )  # fmt: skip

    @property
    def context(self) -> Context:
        """The context of this service."""
        return self._context

    def handle(self, data: list[dict[str, Any]]) -> Any:
        """Calls the entry point with rows and the context."""
        if self._entry_point is None:
            raise RuntimeError("the service has no entry point")
        return self._entry_point(data, self._context)

    def set_cl_socket(self, cl_socket: socket.socket) -> None:
        """Sets the socket that handlers stream to."""
        if self.context is not None:
            self.context.cl_socket = cl_socket

    @staticmethod
    def retrieve_data_for_inference(batch: Batch | None) -> Inference:
        """Headers, rows and request ids of the requests TorchServe's frontend sent."""
        if batch is None:
            raise ValueError("Received invalid inputs")
        processors, rows, request_ids = [], [], {}
        for idx, request in enumerate(batch):
            request_ids[idx] = text(request["requestId"])
            headers: dict[str, Any] = {text(h["name"]): text(h["value"]) for h in request.get("headers") or ()}
            parameters = request.get("parameters") or ()
            headers.update({p["name"]: {"content-type": p["contentType"]} for p in parameters})
            processors.append(RequestProcessor(headers))
            rows.append({p["name"]: p["value"] for p in parameters})
        return processors, rows, request_ids

    def predict(self, batch: Batch) -> bytearray:
        """Answers a batch of TorchServe's frontend, in the frontend's wire format, and says how long it took."""
        context = self._context
        context.request_processor, rows, request_ids = self.retrieve_data_for_inference(batch)
        context.request_ids = request_ids
        if context.metrics is not None:
            context.metrics.set_request_ids(request_ids)
        started = time.perf_counter()
        try:
            outputs = self.handle(rows)
            failure = check_outputs(outputs, len(rows))
        except Exception as error:
            logger.error("Invoking custom service failed.", exc_info=error)
            return self._failed(failure_of(error))
        if context.metrics is not None:
            elapsed = round((time.perf_counter() - started) * 1000, 2)
            context.metrics.add_time(PREDICTION_METRIC, elapsed, metric_type=MetricTypes.GAUGE)
        if failure is not None:
            return self._failed(failure)
        return create_predict_response(outputs, request_ids, PREDICTION_SUCCESS, 200, context=context)

    def _failed(self, failure: BatchFailure) -> bytearray:
        status = failure.status or FAILURE_STATUS.get(failure.cause, 503)
        return create_predict_response(None, self._context.request_ids or {}, failure.message, status)


def text(value: str | bytes) -> str:
    """Text of what came over the wire."""
    return value if isinstance(value, str) else bytes(value).decode("utf-8")


def emit_metrics(metrics: Iterable[Metric] | None) -> None:
    """Writes metrics, one line each, where the server collects them."""
    for metric in metrics or ():
        write_metric(metric)
