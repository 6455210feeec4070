"""ONNX files of many origins: all are served, and answer what bare ONNX Runtime answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import requests

from harness.onnx_files import FILES, Feeds, OnnxFile
from harness.server import ASK_SECONDS, Server

LIBRARY = Path(onnxruntime.__file__).parent / "capi"

DATATYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "object": "BYTES",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

FILES_WITH_TERMS = [pytest.param(file, id=file.name, marks=() if file.small else pytest.mark.heavy) for file in FILES]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, tuple[Path, Feeds]]:
    """Every file that this run asks for, in a directory of its own."""
    home = tmp_path_factory.mktemp("zoo")
    chosen = {
        item.callspec.params["file"].name
        for item in request.session.items
        if item.path == Path(__file__) and hasattr(item, "callspec") and "file" in item.callspec.params
    }
    made = {}
    for file in FILES:
        if file.name in chosen:
            path = home / file.name / f"{file.name}.onnx"
            path.parent.mkdir()
            made[file.name] = (path, file.make(path))
    return made


@pytest.fixture(scope="module")
def server(
    binary: Path, zoo: dict[str, tuple[Path, Feeds]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """All of them, in one server, with ONNX Runtime from the tests' own Python."""
    paths = [path for path, _ in zoo.values()]
    server = Server(binary, tmp_path_factory.mktemp("files") / "server", ["serve", *paths, "--onnx-library", LIBRARY])
    yield server.started()
    server.end()


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


def test_there_are_thirty_files() -> None:
    assert len(FILES) >= 30


@pytest.mark.parametrize("file", FILES_WITH_TERMS)
def test_a_file_answers_as_bare_onnx_runtime_does(
    server: Server, zoo: dict[str, tuple[Path, Feeds]], file: OnnxFile
) -> None:
    path, feeds = zoo[file.name]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = expected(session.run(None, feeds), names)
    body = {"inputs": [sent(name, value) for name, value in feeds.items()]}
    reply = requests.post(server.url(f"/v2/models/{file.name}/infer"), json=body, timeout=ASK_SECONDS)
    assert reply.status_code == 200, reply.text
    given = {output["name"]: output for output in reply.json()["outputs"]}
    assert list(given) == list(wanted)
    for name, value in wanted.items():
        assert given[name]["shape"] == list(value.shape), name
        if value.dtype.kind in "OU":
            assert given[name]["data"] == value.ravel().tolist(), name
        else:
            assert given[name]["datatype"] == DATATYPES[str(value.dtype)], name
            data = np.array(given[name]["data"], dtype=value.dtype).reshape(value.shape)
            np.testing.assert_allclose(data, value, rtol=1e-5, atol=1e-6, err_msg=name)
