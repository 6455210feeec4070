"""Inputs and answers of ONNX models in the Open Inference Protocol, beside those of bare ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

LIBRARY = Path(onnxruntime.__file__).parent / "capi"

DATATYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "object": "BYTES",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def sent(name: str, value: Any) -> dict[str, Any]:
    """An input of the Open Inference Protocol."""
    data = [bool(one) if value.dtype == bool else one for one in value.ravel().tolist()]
    return {"name": name, "shape": list(value.shape), "datatype": DATATYPES[str(value.dtype)], "data": data}


def expected(outputs: list[Any], names: list[str]) -> dict[str, Any]:
    """Bare ONNX Runtime's outputs under the names of docs/guides/onnx.md: maps and sequences have two."""
    given: dict[str, Any] = {}
    for name, output in zip(names, outputs, strict=True):
        if not isinstance(output, list):
            given[name] = np.asarray(output)
        elif isinstance(output[0], dict):
            given[name] = np.array([list(row.values()) for row in output], dtype=np.float32)
            given[f"{name}.keys"] = np.array([list(row) for row in output])
        else:
            equal = len({piece.shape for piece in output}) == 1
            given[name] = np.stack(output) if equal else np.concatenate([piece.ravel() for piece in output])
            given[f"{name}.shapes"] = np.array([piece.shape for piece in output])
    return given


def check(answer: list[dict[str, Any]], wanted: dict[str, Any], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Fails unless the outputs of an answer are the expected ones."""
    given = {output["name"]: output for output in answer}
    assert list(given) == list(wanted)
    for name, value in wanted.items():
        assert given[name]["shape"] == list(value.shape), name
        if value.dtype.kind in "OU":
            assert given[name]["data"] == value.ravel().tolist(), name
        else:
            assert given[name]["datatype"] == DATATYPES[str(value.dtype)], name
            data = np.array(given[name]["data"], dtype=value.dtype).reshape(value.shape)
            np.testing.assert_allclose(data, value, rtol=rtol, atol=atol, err_msg=name)
