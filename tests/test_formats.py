"""Files and folders of other libraries, served by one command each and answered as the library itself does.

It runs in the environment `formats`, where these libraries are: `make test-formats`.
"""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import requests

from harness.format_answers import check, infer
from harness.formats import MAKERS, MadeModel
from harness.server import ASK_SECONDS, Server

pytest.importorskip("skops", reason="the environment `formats` has what these models are made with")


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


def test_a_folder_of_anything_says_why_it_cannot_be_served(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("hello")
    said = serve_fails(binary, tmp_path)
    assert "no known format: the folder has notes.md" in said


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


def test_inspect_leaves_to_the_server_what_it_reads_itself(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    assert inspected(binary, tmp_path / "net.onnx") == (
        0, {"path": f"{tmp_path}/net.onnx", "format": "ONNX", "serve": f"jitney serve {tmp_path}/net.onnx"}
    )  # fmt: skip
