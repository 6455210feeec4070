"""Asks a served model over the Open Inference Protocol, and compares the answer with that of its own library."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tritonclient import http

from harness.formats import MadeModel
from harness.server import ASK_SECONDS, Server

DATATYPES = {
    "float64": "FP64",
    "float32": "FP32",
    "float16": "FP16",
    "int64": "INT64",
    "object": "BYTES",
    "bool": "BOOL",
}


def infer(server: Server, name: str, made: MadeModel) -> dict[str, np.ndarray]:
    """The answer, in binary."""
    client = http.InferenceServerClient(server.urls["inference"].removeprefix("http://"), network_timeout=ASK_SECONDS)
    inputs = []
    for one, array in made.inputs.items():
        kind = "object" if array.dtype.kind in "OUT" else str(array.dtype)
        tensor = http.InferInput(one, list(array.shape), DATATYPES[kind])
        tensor.set_data_from_numpy(
            np.asarray([str(text) for text in array], dtype=object) if kind == "object" else array
        )
        inputs.append(tensor)
    answer = client.infer(name, inputs)
    return {one: answer.as_numpy(one) for one in made.outputs}


def check(answer: Mapping[str, np.ndarray], made: MadeModel) -> None:
    """Texts are equal, and numbers to within what sums in another order make."""
    for one, expected in made.outputs.items():
        if expected.dtype.kind in "OUT":
            assert [text.decode() for text in answer[one]] == list(expected)
            continue
        np.testing.assert_allclose(answer[one].astype(float), expected.astype(float), rtol=1e-5, atol=1e-6)
