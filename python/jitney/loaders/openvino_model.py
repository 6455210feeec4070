"""OpenVINO's models, `model.xml` with `model.bin`: data, not code. They run on the processor, or on what
OpenVINO finds of Intel's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from jitney.loaders.files import lone_file
from jitney.loaders.loader import Loader, ModelTensors
from jitney.values.tensor import BYTES, FORMATS, Tensor

THREADS = "OMP_NUM_THREADS"
"""Where a worker says how many threads are its own; OpenVINO does not look there itself."""
DATATYPES = {"BOOLEAN": "BOOL", "STRING": BYTES} | {
    f"{short}{bits}": f"{long}{bits}"
    for short, long in (("U", "UINT"), ("I", "INT"), ("F", "FP"))
    for bits in (8, 16, 32, 64)
    if f"{long}{bits}" in FORMATS
}
"""By OpenVINO's names."""


class OpenvinoLoader(Loader):
    """Runs models of OpenVINO."""

    format = "OpenVINO"
    needs: ClassVar[Mapping[str, str]] = {"openvino": "openvino"}
    _model: Any = None
    _outputs: Sequence[tuple[str, Any]] = ()

    @classmethod
    def finds(cls, path: Path) -> bool:
        """By the beginning of its XML."""
        return _file(path) is not None

    def load(self, path: Path, device: str) -> None:
        """Compiles it for batches that come one after the other, each of which gets all threads of the worker. With
        OpenVINO's hint for throughput a batch would get some of them, and the others nothing."""
        import openvino

        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        if (threads := os.environ.get(THREADS, "")).isdigit():
            settings["INFERENCE_NUM_THREADS"] = int(threads)
        self._take(openvino.Core().compile_model(str(_file(path)), "CPU", settings))

    def describe(self, path: Path) -> dict[str, Any]:
        """What its file says; compiling it is for the worker."""
        import openvino

        self._take(openvino.Core().read_model(str(_file(path))))
        return self.tensors().told()

    def _take(self, model: Any) -> None:
        self._model = model
        self._outputs = [(_name(one, "output", at), one) for at, one in enumerate(model.outputs)]

    def tensors(self) -> ModelTensors:
        """What the model says; a first dimension that is free everywhere is the batch's."""
        inputs = [(_name(one, "input", at), one) for at, one in enumerate(self._model.inputs)]
        told = [{name: _tensor(one) for name, one in side} for side in (inputs, self._outputs)]
        free = all(one.shape and one.shape[0] == -1 for side in told for one in side.values())
        return ModelTensors(told[0], told[1], 0 if free else None)

    def run(self, batch: Any) -> Any:
        """Runs it."""
        answer = self._model([batch[_name(one, "input", at)] for at, one in enumerate(self._model.inputs)])
        return {name: answer[one] for name, one in self._outputs}


def _tensor(port: Any) -> Tensor:
    kind = port.element_type.get_type_name().upper()
    shape = [dim.get_length() if dim.is_static else -1 for dim in port.partial_shape]
    return Tensor(DATATYPES.get(kind, kind), shape)


def _name(port: Any, otherwise: str, at: int) -> str:
    names = sorted(port.names)
    return str(names[0]) if names else f"{otherwise}_{at}"


def _file(path: Path) -> Path | None:
    found = lone_file(path, (".xml",), lambda head: b"<net " in head and b"version=" in head)
    return found if found is not None and found.with_suffix(".bin").is_file() else None
