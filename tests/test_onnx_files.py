"""ONNX files of many origins: all are served, and answer what bare ONNX Runtime answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest
import requests

from harness.onnx_answers import LIBRARY, check, expected, sent
from harness.onnx_files import FILES, Feeds, OnnxFile
from harness.server import ASK_SECONDS, Server

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
    check(reply.json()["outputs"], wanted)
