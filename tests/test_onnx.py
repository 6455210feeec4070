"""ONNX without Python: real files get real labels, wrong requests are rejected alone, and a model harms only itself."""

from __future__ import annotations

import base64
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from harness import onnx
from harness.archives import Store
from harness.client import curl, later, together
from harness.processes import command, marked
from harness.server import Server
from harness.shape import assert_problem, timing_of
from harness.wait import until
from test_grpc import address

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
    others = [command(pid) for pid in marked(server.mark) if pid != server.pid]
    assert others and all(b"onnx-worker" in words for words in others), "it runs no other program"
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
    url = server.url("/predictions/magika")
    assert top(curl("-T", ROOT / "Cargo.toml", url).json()) == "toml"
    text = "import os\ndef f(x=1):\n    return os.path.join(x)\n"
    assert top(curl("--data-binary", text, url).json()) == "python", "curl calls it a form"
    instances = {"instances": [text, {"b64": base64.b64encode(text.encode()).decode()}]}
    told = requests.post(server.url("/v1/models/magika:predict"), json=instances, timeout=120).json()
    assert [top(one) for one in told["predictions"]] == ["python"] * 2


# -- what only the engine finds wrong ------------------------------------------------------------


def engine_flags(engine: str) -> tuple[object, ...]:
    """The flags for an engine, where this machine has it."""
    if engine == "builtin":
        return ("--onnx-engine", engine)
    return (
        "--onnx-engine",
        engine,
        "--onnx-library",
        Path(pytest.importorskip("onnxruntime").__file__).parent / "capi",
    )


@pytest.mark.parametrize("engine", ["builtin", "onnxruntime"])
def test_a_shape_that_the_model_cannot_be_run_on_is_the_clients_mistake(start, tmp_path: Path, engine: str) -> None:
    model = onnx.projection(tmp_path / "projection.onnx")
    server = start("serve", model, *engine_flags(engine), env={"PATH": ""})
    assert send(server, "projection", [[[1, 1, 1], [0, 0, 1]]]).json() == [[[6.0], [3.0]]]
    assert send(server, "projection", [[[1, 1]]]).status_code == 400
    tensor = {"name": "x", "shape": [1, 1, 2], "datatype": "FP32", "data": [1, 1]}
    refused = requests.post(server.url("/v2/models/projection/infer"), json={"inputs": [tensor]}, timeout=120)
    assert refused.status_code == 400, refused.text
    with triton.InferenceServerClient(address(server, "inference")) as client:
        given = triton.InferInput("x", [1, 1, 2], "FP32")
        given.set_data_from_numpy(np.ones((1, 1, 2), np.float32))
        with pytest.raises(InferenceServerException) as raised:
            client.infer("projection", [given])
    assert raised.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_a_text_with_a_nul_is_the_clients_mistake(start, tmp_path: Path) -> None:
    server = start("serve", onnx.echo(tmp_path / "echo.onnx"), *engine_flags("onnxruntime"), env={"PATH": ""})
    assert send(server, "echo", ["a", "b"]).json() == ["a", "b"]
    refused = send(server, "echo", ["a\0b"])
    assert (refused.status_code, "NUL" in refused.text) == (400, True)


# -- a process of its own ----------------------------------------------------------------------

MEMORY = "512MiB"
TOO_LARGE = 100_000
"""A batch of `greedy` with this number asks for 40 GB."""
ENDLESS = 5_000
"""And with this one for 300 MB, and 750 billion operations."""


@pytest.fixture(scope="module")
def limited(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Models that a request can make hungry or slow, beside one that must not notice."""
    home = tmp_path_factory.mktemp("limited")
    store = Store(home / "store")
    onnx.filler(store.path / "filler.onnx")
    onnx.greedy(store.path / "greedy.onnx")
    flags = ("--memory-limit", MEMORY, "--max-batch-delay", "400ms", "--batch-size", "4")
    arguments = ["serve", store.path / "filler.onnx", store.path / "greedy.onnx", copy_model(store.path), *flags]
    arguments += ["--model-store", store.path]
    server = Server(binary, home / "server", arguments, env={"PATH": ""}, store=store)
    yield server.started()
    server.end()


def send(server: Server, model: str, body: object) -> requests.Response:
    return requests.post(server.url(f"/predictions/{model}"), json=body, timeout=120)


def is_served(server: Server) -> bool:
    return top(server.predict("magika", (ROOT / "Cargo.toml").read_bytes()).json()) == "toml"


@pytest.mark.parametrize("sizes", [[2**31 - 1, 100_000], [2**31 - 1, 1_000]])
def test_a_request_that_needs_too_much_memory_costs_one_worker(limited: Server, sizes: list[int]) -> None:
    """The first asks for more than can be addressed, the second for 8 TB that the kernel would promise."""
    (before,) = limited.ready("filler").values()
    (neighbour,) = limited.ready("magika").values()
    assert_problem(send(limited, "filler", {"x": sizes}), 507, "InternalServerException", "memory")
    assert is_served(limited)
    assert send(limited, "filler", {"x": [1, 2]}).json() == [[0.0, 0.0]]
    assert before not in limited.ready("filler").values()
    assert list(limited.ready("magika").values()) == [neighbour], "it did not notice"


def test_neighbours_in_the_batch_of_a_hungry_request_are_answered(limited: Server) -> None:
    rows = [1, 2, TOO_LARGE, 3]
    replies = together([lambda row=row: send(limited, "greedy", {"x": [row]}) for row in rows])
    assert [reply.status_code for reply in replies] == [200, 200, 507, 200]
    assert [reply.json() for reply in replies if reply.ok] == [[1], [2], [3]]


def test_onnx_runtime_answers_a_hungry_request_as_the_builtin_engine_does(start, tmp_path: Path) -> None:
    flags = (*engine_flags("onnxruntime"), "--memory-limit", MEMORY)
    server = start("serve", onnx.greedy(tmp_path / "greedy.onnx"), *flags, env={"PATH": ""})
    replies = together([lambda row=row: send(server, "greedy", {"x": [row]}) for row in (1, TOO_LARGE, 2)])
    assert [reply.status_code for reply in replies] == [200, 507, 200]
    assert_problem(replies[1], 507, "InternalServerException", "ran out of memory on this request")


def test_a_worker_that_is_killed_loses_no_request(limited: Server) -> None:
    (pid,) = until(lambda: limited.ready("greedy"), "the worker is back").values()
    calls = [lambda row=row: send(limited, "greedy", {"x": [row]}) for row in range(1, 40)]
    calls.insert(10, lambda: os.kill(pid, signal.SIGKILL))
    replies = together(calls)
    assert [reply.json() for reply in replies if reply is not None] == [[row] for row in range(1, 40)]
    assert pid not in limited.ready("greedy").values()


def test_a_batch_that_never_ends_is_cut(start, tmp_path: Path) -> None:
    model = onnx.greedy(tmp_path / "greedy.onnx")
    server = start("serve", model, "--response-timeout", "1", "--memory-limit", "1GiB", env={"PATH": ""})
    (pid,) = server.ready("greedy").values()
    assert send(server, "greedy", {"x": [ENDLESS]}).status_code >= 500
    assert send(server, "greedy", {"x": [1]}).json() == [1]
    assert pid not in server.ready("greedy").values()


def test_workers_end_with_a_server_that_is_killed(start, tmp_path: Path) -> None:
    server = start("serve", onnx.greedy(tmp_path / "greedy.onnx"), env={"PATH": ""})
    busy = later(lambda: send(server, "greedy", {"x": [ENDLESS]}))
    server.kill()
    with pytest.raises(requests.ConnectionError):
        busy.result()
    assert server.orphans() == []


def test_a_model_may_share_the_process_of_the_server(start, tmp_path: Path) -> None:
    server = start("serve", copy_model(tmp_path), "--isolation", "thread", env={"PATH": ""})
    assert is_served(server)
    assert set(server.ready("magika").values()) == {None}, "a thread has no process id"
    assert not [pid for pid in marked(server.mark) if b"onnx-worker" in command(pid)]


def test_a_model_that_needs_more_memory_than_it_may_have_is_rejected(server: Server) -> None:
    reply = server.manage("POST", "/models", url="magika.onnx", model_name="small", memory_limit="1MiB")
    assert_problem(reply, 400, "InvalidModelException", "memory")
