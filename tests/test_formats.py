"""Files and folders of other libraries, served by one command each and answered as the library itself does.

It runs in the environment `formats`, where these libraries are: `make test-formats`.
"""

from __future__ import annotations

import json
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import requests

from harness import onnx, pretrained
from harness.format_answers import check, infer
from harness.formats import MAKERS, MadeModel
from harness.server import ASK_SECONDS, Server

pytest.importorskip("skops", reason="the environment `formats` has what these models are made with")

LOAD_SECONDS = 600
"""Workers import torch and transformers, which takes minutes beside busy processes."""


class Models(dict[str, MadeModel]):
    """Every model is made when a test asks for it, and once."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        super().__init__()
        self._factory = factory

    def __missing__(self, name: str) -> MadeModel:
        self[name] = made = MAKERS[name](self._factory.mktemp(name))
        return made


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory)


@pytest.mark.parametrize("name", MAKERS)
def test_the_answer_is_that_of_the_library(binary: Path, models: Models, tmp_path: Path, name: str) -> None:
    made = models[name]
    trust = ["--trust"] if made.needs_trust else []
    server = Server(binary, tmp_path / "server", ["serve", f"{name}={made.path}", *trust])
    try:
        answer = infer(server.started(), name, made)
    finally:
        server.end()
    check(answer, made)


def serve_fails(binary: Path, *arguments: str | Path) -> str:
    command = [binary, "serve", "--port", "0", *map(str, arguments)]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    assert ended.returncode == 1, ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    "name", ["sklearn_forest_joblib", "torch_compiled", "safetensors_with_module", "mlflow_python"]
)
def test_what_runs_code_wants_trust(binary: Path, models: Models, name: str) -> None:
    said = serve_fails(binary, models[name].path)
    assert "if you trust whoever made it, say --trust" in said


def tampered(path: Path, to: Path, old: str, new: str) -> Path:
    """A copy of a program with another text in it."""
    with zipfile.ZipFile(path) as package, zipfile.ZipFile(to, "w") as written:
        for one in package.infolist():
            content = package.read(one)
            if one.filename.endswith(".json"):
                content = content.replace(old.encode(), new.encode())
            written.writestr(one, content)
    return to


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.ops.aten.linear.default", "torch.os.system"),
        ("torch.ops.aten.linear.default", "torch.ops.load_library"),
        ("torch.ops.aten.linear.default", "_operator.call"),
        ("Symbol('", "__import__('os').system('"),
        ("Symbol(", "eval("),
    ],
)
def test_a_program_that_is_more_than_data_wants_trust(
    binary: Path, models: Models, tmp_path: Path, old: str, new: str
) -> None:
    path = tampered(models["torch_export_batches"].path, tmp_path / "net.pt2", old, new)
    said = serve_fails(binary, path)
    assert "torch would evaluate more than a program's operators" in said
    assert "say --trust" in said


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"notes.md": b"hello"}, "no known format: the folder has notes.md; known are archives, .onnx files, Python"),
        (
            {"a.json": b'{"learner": {}}', "b.json": b'{"learner": {}}'},
            "the folder holds 2 models, and none says that it is the one: a.json (XGBoost), b.json (XGBoost); name one",
        ),
        ({"broken.pt2": b"PK"}, "no known format: the folder has broken.pt2"),
    ],
)
def test_a_folder_of_anything_says_why_it_cannot_be_served(
    binary: Path, tmp_path: Path, files: dict[str, bytes], reason: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert reason in serve_fails(binary, tmp_path)


@pytest.mark.parametrize(("inner", "reason"), [("", "holds no model: it may hold"), ("data", "data holds no model: ")])
def test_a_folder_that_may_get_models_later_says_that_it_has_none(
    start: Callable[..., Server], tmp_path: Path, inner: str, reason: str
) -> None:
    folder = tmp_path / "served"
    (folder / inner).mkdir(parents=True)
    server = start("serve", folder)
    server.logged(reason)
    assert "Hugging Face, MLflow, scikit-learn, XGBoost" in server.log


def test_a_script_without_types_says_how_to_declare_them(binary: Path, models: Models, tmp_path: Path) -> None:
    copy = tmp_path / "bare.pt"
    copy.write_bytes(models["torch_script_declared"].path.read_bytes())
    said = serve_fails(binary, copy)
    assert "bare.tensors.json" in said
    assert "bare.example.npy" in said


def test_requests_share_batches(binary: Path, models: Models, tmp_path: Path) -> None:
    made = models["torch_export_batches"]
    flags = ["--max-batch-delay-ms", "600000", "--batch-size", "2"]
    server = Server(binary, tmp_path / "server", ["serve", f"net={made.path}", *flags])
    server.started()
    try:
        from harness.client import together

        url = f"{server.urls['inference']}/predictions/net"
        rows = made.inputs["input"][:2]
        answers = together(
            [lambda row=row: requests.post(url, json={"input": [row.tolist()]}, timeout=ASK_SECONDS) for row in rows]
        )
        for answer, expected in zip(answers, made.outputs["output"]):
            np.testing.assert_allclose(answer.json()["output"][0], expected, rtol=1e-5)
            assert " of 2" in answer.headers["server-timing"]
    finally:
        server.end()


def test_a_list_of_models_takes_files(binary: Path, models: Models, tmp_path: Path) -> None:
    made = models["sklearn_forest_joblib"]
    entry = {"name": "listed", "path": str(made.path), "trust": True}
    (tmp_path / "jitney.yaml").write_text(json.dumps({"models": [entry]}))
    server = Server(binary, tmp_path / "server", ["serve", "--config", tmp_path / "jitney.yaml"])
    server.started()
    try:
        body = {"input": made.inputs["input"].tolist()}
        answer = requests.post(f"{server.urls['inference']}/predictions/listed", json=body, timeout=ASK_SECONDS)
        assert answer.json()["predict"] == made.outputs["predict"].tolist()
    finally:
        server.end()


def test_a_job_without_a_server_takes_files(binary: Path, models: Models, tmp_path: Path) -> None:
    made = models["xgboost_regression_ubj"]
    rows = [json.dumps({"input": [row.tolist()]}) for row in made.inputs["input"]]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    out = tmp_path / "answers.jsonl"
    command = [binary, "infer", made.path, tmp_path / "rows.jsonl", "-o", out]
    subprocess.run(list(map(str, command)), check=True, timeout=ASK_SECONDS)
    answers = [json.loads(line)["output"]["predict"][0] for line in out.read_text().splitlines()]
    np.testing.assert_allclose(answers, made.outputs["predict"], rtol=1e-5)


def inspected(binary: Path, *arguments: str | Path) -> tuple[int, dict]:
    command = [str(one) for one in (binary, "inspect", "--json", *arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    return ended.returncode, json.loads(ended.stdout)


def test_inspect_says_what_it_is_and_how_to_call_it(binary: Path, models: Models) -> None:
    path = models["xgboost_classes_ubj"].path
    status, found = inspected(binary, path)
    assert (status, found["format"], found["problems"]) == (0, "XGBoost", [])
    [endpoint] = found["endpoints"]
    assert endpoint["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
    assert endpoint["batching"] == "requests share batches of up to 32 items, along dimension 0"
    assert found["serve"] == f"jitney serve {path}"
    assert found["call"].startswith("curl ") and '{"input": [[0, 0, 0, 0]]}' in found["call"]


def test_inspect_says_what_is_missing(binary: Path, models: Models, tmp_path: Path) -> None:
    path = models["sklearn_forest_joblib"].path
    status, found = inspected(binary, path)
    assert status == 1 and "is a pickle" in found["problems"][0]
    assert found["serve"].endswith("--trust")
    (tmp_path / "notes.md").write_text("hello")
    status, found = inspected(binary, tmp_path)
    assert status == 1 and found["problems"][0].startswith("no known format: the folder has notes.md")


def adder(path: Path) -> Path:
    """`y = x + 1`, for rows of two numbers."""
    row = [onnx.value(name, onnx.FLOAT, ["n", 2]) for name in "xy"]
    weight = onnx.tensor(onnx.FLOAT, [1], struct.pack("<f", 1.0), "b")
    return onnx.write(path, [onnx.node("Add", ["x", "b"], "y")], row[:1], row[1:], [weight])


def test_inspect_tells_what_an_onnx_file_takes(binary: Path, start: Callable[..., Server], tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    adder(path)
    status, found = inspected(binary, path)
    assert (status, found["format"], found["serve"], found["problems"]) == (0, "ONNX", f"jitney serve {path}", [])
    [endpoint] = found["endpoints"]
    assert [one["datatype"] for one in (*endpoint["inputs"], *endpoint["outputs"])] == ["FP32", "FP32"]
    assert endpoint["inputs"][0]["shape"] == [-1, 2] and endpoint["batching"].startswith("requests share batches")
    check_call(found["call"], start("serve", f"net={path}"))
    (tmp_path / "broken.onnx").write_bytes(b"PK")
    status, found = inspected(binary, tmp_path / "broken.onnx")
    assert status == 1 and found["problems"], found


def check_call(line: str, server: Server) -> None:
    """The line works when it is pasted into a shell."""
    line = line.replace("http://127.0.0.1:8080", server.urls["inference"])
    line = line.replace("curl ", "curl --silent --show-error --fail ")
    ended = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    assert ended.returncode == 0 and ended.stdout, f"{line}\n{ended.stderr}"


def test_inspect_lists_the_models_of_a_folder(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "add" / "1").mkdir(parents=True)
    adder(tmp_path / "add" / "1" / "model.onnx")
    (tmp_path / "notes").mkdir()
    status, found = inspected(binary, tmp_path)
    assert (status, found["format"]) == (1, "a folder of models")
    assert [line.split()[0] for line in found["models"]] == ["add"]
    assert "notes holds no model" in found["problems"][0]


@pytest.mark.parametrize(("head", "batching"), [("BertForMaskedLM", "8192 tokens"), ("gpt2", "token by token")])
def test_inspect_tells_how_to_call_a_hugging_face_folder(
    binary: Path, start: Callable[..., Server], tmp_path: Path, head: str, batching: str
) -> None:
    folder = tmp_path / "folder"
    pretrained.gpt2(folder) if head == "gpt2" else pretrained.bert(folder, head)
    status, found = inspected(binary, folder)
    assert status == 0 and batching in found["endpoints"][0]["batching"]
    check_call(found["call"], start("serve", folder, start_seconds=LOAD_SECONDS))
