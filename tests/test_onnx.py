"""ONNX in process: real files get real labels, wrong requests are rejected alone, and no Python is needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.client import curl, together
from harness.processes import marked
from harness.server import Server
from harness.shape import assert_problem, timing_of

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "models" / "magika"
MAGIKA = next(MODEL.glob("*.onnx"))

LABELS = {
    "Cargo.toml": "toml",
    "Makefile": "makefile",
    "LICENSE": "txt",
    "ARCHITECTURE.md": "markdown",
    "protocol/spec.md": "markdown",
    "protocol/vectors.json": "json",
    "crates/batcher/src/lib.rs": "rust",
    "crates/engine/src/engine.rs": "rust",
    "python/jitney/worker/loop.py": "python",
    "tests/harness/server.py": "python",
    "models/magika/model.yaml": "yaml",
}


def copy_model(directory: Path) -> Path:
    """Model, card and labels as a user would lay them side by side."""
    card = next(MODEL.glob("*.yaml"))
    for source, name in ((MAGIKA, "magika.onnx"), (card, "magika.yaml"), (MODEL / "labels.txt", "labels.txt")):
        shutil.copy(source, directory / name)
    return directory / "magika.onnx"


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The model with batching, on a machine where the path leads nowhere."""
    home = tmp_path_factory.mktemp("onnx")
    store = Store(home / "store")
    flags = ("--model-store", store.path, "--batch-size", "8", "--max-batch-delay", "400ms")
    arguments = ["serve", copy_model(store.path), *flags]
    server = Server(binary, home / "server", arguments, env={"PATH": "", "VIRTUAL_ENV": ""}, store=store)
    yield server.started()
    server.end()


def top(answer: dict[str, float]) -> str:
    """The most probable label."""
    assert "code" not in answer, answer
    return max(answer, key=answer.__getitem__)


@pytest.mark.parametrize("file", LABELS)
def test_files_of_this_repository_are_recognised(server: Server, file: str) -> None:
    reply = curl("-T", ROOT / file, server.url("/predictions/magika"))
    assert top(reply.json()) == LABELS[file], reply.text


def test_requests_share_a_batch_and_each_gets_its_own_row(server: Server) -> None:
    files = ["Cargo.toml", "crates/batcher/src/lib.rs", "python/jitney/worker/loop.py", "protocol/spec.md"] * 2
    replies = together([lambda file=file: server.predict("magika", (ROOT / file).read_bytes()) for file in files])
    assert [top(reply.json()) for reply in replies] == [LABELS[file] for file in files]
    assert [timing_of(reply).size for reply in replies] == [8] * 8


def test_a_batch_answers_as_single_requests_do(server: Server) -> None:
    contents = [(ROOT / file).read_bytes() for file in list(LABELS)[:8]]
    alone = [server.predict("magika", content).json() for content in contents]
    shared = [
        reply.json()
        for reply in together([lambda content=content: server.predict("magika", content) for content in contents])
    ]
    for one, other in zip(alone, shared, strict=True):
        assert top(one) == top(other) and one[top(one)] == pytest.approx(other[top(other)], abs=1e-4)


def test_the_server_needs_no_python(server: Server) -> None:
    assert marked(server.mark) == [server.pid], "it runs no other process"
    assert "Python" not in server.log


# -- tensors over the Open Inference Protocol --------------------------------------------------


def infer(server: Server, **tensor: object) -> requests.Response:
    """One request in the protocol's form."""
    given = {"name": "bytes", "shape": [1, 2048], "datatype": "INT32", "data": [256] * 2048} | tensor
    return requests.post(server.url("/v2/models/magika/infer"), json={"inputs": [given]}, timeout=120)


def test_tensors_are_answered_with_tensors(server: Server) -> None:
    answer = infer(server).json()
    (output,) = answer["outputs"]
    assert answer["model_name"] == "magika"
    assert output["shape"] == [1, 214] and output["datatype"] == "FP32"
    assert sum(output["data"] if not isinstance(output["data"][0], list) else output["data"][0]) == pytest.approx(
        1, abs=1e-3
    )


WRONG = {
    "another width": {"shape": [1, 7], "data": [1] * 7},
    "another rank": {"shape": [2048], "data": [1] * 2048},
    "fewer numbers than the shape says": {"data": [1, 2, 3]},
    "no numbers": {"shape": [0, 2048], "data": []},
    "another type": {"datatype": "BYTES", "data": ["text"] * 2048},
    "words for numbers": {"data": ["text"] * 2048},
    "fractions for whole numbers": {"data": [0.5] * 2048},
    "numbers beyond the type": {"data": [2**40] * 2048},
    "an unknown input": {"name": "pixels"},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_rejected_and_its_neighbours_are_answered(server: Server, name: str) -> None:
    """The good ones are on their way at the same time, and would share the window with the bad one."""
    good = (ROOT / "Cargo.toml").read_bytes()
    calls = [
        lambda: server.predict("magika", good),
        lambda: infer(server, **WRONG[name]),
        lambda: server.predict("magika", good),
    ]
    first, bad, last = together(calls)
    if name == "more rows than a batch holds":
        assert_problem(bad, 413, "RequestEntityTooLargeException")
    else:
        assert_problem(bad, 400, "BadRequestException")
    assert [top(first.json()), top(last.json())] == ["toml", "toml"]


@pytest.mark.parametrize("body", [b"not json", b"[]", b"{}", b'{"inputs": 5}', b'{"inputs": []}', b""])
def test_a_body_that_is_not_the_protocols_is_rejected(server: Server, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    reply = requests.post(server.url("/v2/models/magika/infer"), data=body, headers=headers, timeout=120)
    assert_problem(reply, 400, "BadRequestException")


def test_an_empty_file_is_rejected(server: Server) -> None:
    assert_problem(server.predict("magika", b""), 400, "BadRequestException", "no body")


def test_a_request_may_bring_several_rows(server: Server) -> None:
    answer = infer(server, shape=[3, 2048], data=[256] * 2048 * 3)
    assert answer.json()["outputs"][0]["shape"] == [3, 214]
    assert timing_of(answer).size == 3, "a batch counts items, not requests"


@pytest.mark.parametrize("content", [b"", b"no model", MAGIKA.read_bytes()[:100_000]], ids=["empty", "text", "cut"])
def test_a_file_that_is_no_model_is_rejected(server: Server, content: bytes) -> None:
    server.store.raw("broken.onnx", content)
    reply = server.manage("POST", "/models", url="broken.onnx", initial_workers=1)
    assert_problem(reply, 400, "InvalidModelException")
    assert top(server.predict("magika", (ROOT / "Cargo.toml").read_bytes()).json()) == "toml"


def test_a_model_is_registered_from_the_store_under_another_name(server: Server) -> None:
    server.register("magika.onnx", model_name="second")
    assert top(server.predict("second", (ROOT / "Cargo.toml").read_bytes()).json()) == "toml"


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "x/../y", "..", "n" * 256])
def test_a_name_that_cannot_stand_in_a_path_is_rejected(server: Server, name: str) -> None:
    reply = server.manage("POST", "/models", url="magika.onnx", model_name=name)
    assert_problem(reply, 400, "BadRequestException", "name")
    assert name not in [model["modelName"] for model in server.manage("GET", "/models").json()["models"]]


def test_a_client_cannot_name_a_file_outside_the_store(server: Server, tmp_path: Path) -> None:
    copy_model(tmp_path).rename(tmp_path / "elsewhere.onnx")
    for url in (str(tmp_path / "elsewhere.onnx"), f"file://{tmp_path}/elsewhere.onnx"):
        assert_problem(server.manage("POST", "/models", url=url), 404, "ModelNotFoundException")


def test_a_model_file_is_served_wherever_it_lies(start, tmp_path: Path) -> None:
    server = start("serve", copy_model(tmp_path), env={"PATH": ""})
    assert top(server.predict("magika", (ROOT / "Cargo.toml").read_bytes()).json()) == "toml"


def test_the_repositorys_own_model_file_is_served_with_its_labels(start) -> None:
    server = start("serve", MAGIKA, env={"PATH": ""})
    assert top(server.predict("magika", (ROOT / "Cargo.toml").read_bytes()).json()) == "toml"


def test_the_demo_serves_the_embedded_model(start) -> None:
    server = start("demo", env={"PATH": ""})
    assert top(curl("-T", ROOT / "Cargo.toml", server.url("/predictions/magika")).json()) == "toml"
