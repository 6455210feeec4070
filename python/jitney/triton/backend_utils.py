"""What models of the Python backend import as `triton_python_backend_utils`.

Names and meanings are Triton's. What only Triton's own process can do (placing memory) is accepted and does nothing.
"""

from __future__ import annotations

import logging
import struct
from typing import Any

from jitney.definition import metrics
from jitney.triton import types
from jitney.triton.messages import (
    COMPLETE_FINAL,
    SEQUENCE_END,
    SEQUENCE_START,
    BackendTensor,
    InferenceRequest,
    InferenceResponse,
    TritonError,
    TritonModelException,
)
from jitney.values.tensor import BYTES

__all__ = ["InferenceRequest", "InferenceResponse", "Tensor", "TritonError", "TritonModelException"]

Tensor = BackendTensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = SEQUENCE_START
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = SEQUENCE_END
TRITONSERVER_RESPONSE_COMPLETE_FINAL = COMPLETE_FINAL
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_CPU_PINNED, TRITONSERVER_MEMORY_GPU = 0, 1, 2

TRITON_STRING_TO_NUMPY = {
    f"TYPE_{'STRING' if name == BYTES else name}": types.numpy_type(name) for name in types.NUMBERS
}


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """numpy's type of a configuration's `TYPE_FP32`."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """numpy's type of a type's number."""
    return types.numpy_type(types.DATATYPES[int(data_type)])


def numpy_to_triton_type(data_type: Any) -> int:
    """The number of numpy's type."""
    import numpy

    return types.NUMBERS[types.of_array(numpy.empty(0, data_type))]


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input of a request, or None."""
    return next((one for one in inference_request.inputs() if one.name() == name), None)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The output of a response, or None."""
    return next((one for one in inference_response.output_tensors() if one.name() == name), None)


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """What the configuration says of an input, or None."""
    return next((one for one in model_config.get("input") or () if one["name"] == name), None)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """What the configuration says of an output, or None."""
    return next((one for one in model_config.get("output") or () if one["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    """Whether the model sends its responses by itself."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled"))


def serialize_byte_tensor(input_tensor: Any) -> Any:
    """Texts as one array of bytes, each behind its length."""
    import numpy

    flat = [one if isinstance(one, bytes) else str(one).encode() for one in input_tensor.reshape(-1)]
    return numpy.array(b"".join(struct.pack("<I", len(one)) + one for one in flat), dtype=object)


def deserialize_bytes_tensor(encoded_tensor: bytes) -> Any:
    """The texts of such bytes."""
    import numpy

    found, at = [], 0
    while at < len(encoded_tensor):
        (length,) = struct.unpack_from("<I", encoded_tensor, at)
        found.append(bytes(encoded_tensor[at + 4 : at + 4 + length]))
        at += 4 + length
    return numpy.array(found, dtype=object)


class PreferredMemory:
    """Where answers of other models should lie; they lie in the processor's memory."""

    def __init__(self, preferred_memory_type: int = TRITONSERVER_MEMORY_CPU, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type, self.preferred_device_id = preferred_memory_type, preferred_device_id


class InferenceTrace:
    """A trace; it follows the server's own."""

    def get_context(self) -> None:
        """Nothing of Triton's."""


class Logger:
    """Writes to the server's log."""

    INFO, WARNING, ERROR, VERBOSE = range(4)
    _levels = (logging.INFO, logging.WARNING, logging.ERROR, logging.DEBUG)
    _log = logging.getLogger("triton_python_backend")

    @classmethod
    def log(cls, message: str, level: int = INFO) -> None:
        """Writes a line."""
        cls._log.log(cls._levels[level], "%s", message)

    @classmethod
    def log_info(cls, message: str) -> None:
        """A line that informs."""
        cls.log(message, cls.INFO)

    @classmethod
    def log_warn(cls, message: str) -> None:
        """A line that warns."""
        cls.log(message, cls.WARNING)

    @classmethod
    def log_error(cls, message: str) -> None:
        """A line about an error."""
        cls.log(message, cls.ERROR)

    @classmethod
    def log_verbose(cls, message: str) -> None:
        """A line for debugging."""
        cls.log(message, cls.VERBOSE)


class MetricSeries:
    """One series of a family."""

    def __init__(self, metric: Any, labels: dict[str, str]) -> None:
        self._metric, self._labels = metric, labels

    def increment(self, value: float) -> None:
        """Adds to it."""
        self._metric.inc(value, **self._labels)

    def set(self, value: float) -> None:
        """Sets it."""
        self._metric.set(value, **self._labels)

    def observe(self, value: float) -> None:
        """Adds a value to a histogram."""
        self._metric.observe(value, **self._labels)

    def value(self) -> Any:
        """What this worker has made of it."""
        return self._metric.value(**self._labels)


Metric = MetricSeries


class MetricFamily:
    """A metric of the model's own, on the server's page of metrics."""

    COUNTER, GAUGE, HISTOGRAM = range(3)

    def __init__(self, name: str, description: str, kind: int) -> None:
        self._name, self._description, self._kind = name, description, kind
        self._made: Any = None

    def Metric(self, labels: dict[str, str] | None = None, buckets: Any = None) -> MetricSeries:  # Triton's.
        """A series with these labels; all series of a family have the same ones."""
        labels = dict(labels or {})
        if self._made is None:
            made = (metrics.Counter, metrics.Gauge, metrics.Histogram)[self._kind]
            options = {"buckets": buckets} if buckets else {}
            self._made = made(self._name, self._description, tuple(labels), **options)
        return MetricSeries(self._made, labels)


class ModelConfig:
    """A configuration that `auto_complete_config` completes."""

    def __init__(self, model_config: dict[str, Any]) -> None:
        self._config = model_config

    def as_dict(self) -> dict[str, Any]:
        """The configuration."""
        return self._config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Sets the batch size, unless the file gives a larger one."""
        if self._config.get("max_batch_size", 0) < max_batch_size:
            self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Allows batches of several requests."""
        self._config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Adds an input, if the file declares none of its name."""
        self._add("input", input)

    def add_output(self, output: dict[str, Any]) -> None:
        """Adds an output, if the file declares none of its name."""
        self._add("output", output)

    def _add(self, kind: str, tensor: dict[str, Any]) -> None:
        for key in ("name", "data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{kind} has no {key}")
        declared = self._config.setdefault(kind, [])
        if all(one["name"] != tensor["name"] for one in declared):
            declared.append(tensor)

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, Any]) -> None:
        """Says whether the model sends its responses by itself."""
        self._config["model_transaction_policy"] = transaction_policy_dict
