"""Files and folders of other libraries that a running server is told of: by its management API, by a repository in
Triton's layout, and by name.

It runs in the environment `formats`, where these libraries are: `make test-formats`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from harness.format_answers import check, infer
from harness.formats import MAKERS, MadeModel
from harness.pretrained import bert
from harness.server import ASK_SECONDS, Server
from harness.wait import until

pytest.importorskip("skops", reason="the environment `formats` has what these models are made with")

LAYOUT = {
    "torch_export_batches": "model.pt2",
    "sklearn_logistic_skops": "model.skops",
    "sklearn_forest_joblib": "model.joblib",
    "xgboost_classes_json": "model.json",
    "xgboost_classes_ubj": "model.ubj",
    "lightgbm_classes": "model.txt",
    "catboost_classes": "model.cbm",
    "mlflow_xgboost": "",
}
"""The file of each model in the folder of its version; a folder is the folder of its version."""

LOAD_SECONDS = 600
"""Each library is imported twice, to look at a model and to run it, which takes minutes beside busy processes."""

PUBLIC = ["torch_export_batches", "sklearn_logistic_skops", "lightgbm_classes", "mlflow_xgboost"]
"""Models that are data and run no code when they are loaded."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MadeModel]:
    return {name: MAKERS[name](tmp_path_factory.mktemp(name)) for name in LAYOUT}


def copied(made: MadeModel, to: Path) -> Path:
    """The model's file or folder at another place."""
    to.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copytree(made.path, to) if made.path.is_dir() else shutil.copyfile(made.path, to))


@pytest.fixture(scope="module")
def store(models: dict[str, MadeModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model store with a file or folder of each."""
    path = tmp_path_factory.mktemp("store")
    for name, made in models.items():
        copied(made, path / f"{name}{made.path.suffix}")
    return path


def served(binary: Path, home: Path, *flags: str | Path) -> Iterator[Server]:
    patient = ["--startup-timeout", str(LOAD_SECONDS)]
    server = Server(binary, home / "server", ["serve", *flags, *patient], start_seconds=LOAD_SECONDS)
    try:
        yield server.started()
    finally:
        server.end()


@pytest.fixture(scope="module")
def server(binary: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    first = f"first={store / 'xgboost_classes_ubj.ubj'}"
    yield from served(binary, tmp_path_factory.mktemp("home"), first, "--model-store", store)


def test_a_registration_takes_what_serve_takes(server: Server, models: dict[str, MadeModel]) -> None:
    for name in PUBLIC:
        made = models[name]
        server.register(f"{name}{made.path.suffix}", model_name=f"told_{name}")
        check(infer(server, f"told_{name}", made), made)


def test_no_client_can_let_code_run(server: Server) -> None:
    for more in ({}, {"trust": "true"}):
        reply = server.manage("POST", "/models", url="sklearn_forest_joblib.joblib", initial_workers=1, **more)
        assert reply.status_code == 400
        assert "sklearn_forest_joblib.joblib is a pickle" in reply.json()["message"]
        assert "say --trust" in reply.json()["message"]
    assert server.manage("GET", "/models/sklearn_forest_joblib").status_code == 404


def test_the_operator_can(binary: Path, store: Path, models: dict[str, MadeModel], tmp_path: Path) -> None:
    first = f"first={store / 'xgboost_classes_ubj.ubj'}"
    for server in served(binary, tmp_path, first, "--model-store", store, "--trust"):
        server.register("sklearn_forest_joblib.joblib", model_name="forest")
        check(infer(server, "forest", models["sklearn_forest_joblib"]), models["sklearn_forest_joblib"])


def test_what_lies_elsewhere_or_is_nothing_is_rejected(server: Server, store: Path, tmp_path: Path) -> None:
    (store / "notes.md").write_text("hello")
    reply = server.manage("POST", "/models", url="notes.md")
    assert reply.status_code == 400
    assert "notes.md: no known format: it is a file of 5 bytes that ends in .md" in reply.json()["message"]
    elsewhere = shutil.copytree(store / "mlflow_xgboost", tmp_path / "elsewhere")
    reply = server.manage("POST", "/models", url=str(elsewhere))
    assert reply.status_code == 404
    assert "no known format" not in reply.text


def test_what_was_packed_goes_with_its_model(server: Server) -> None:
    packed = "models/*/jitney-api.json"
    [scratch] = [one for one in server.temp.iterdir() if list(one.glob(packed))]
    before = set(scratch.glob(packed))
    server.register("xgboost_classes_json.json", model_name="gone", workers=0)
    assert len(set(scratch.glob(packed)) - before) == 1
    assert server.manage("DELETE", "/models/gone").status_code == 200
    until(lambda: set(scratch.glob(packed)) == before, "its folder is gone")


def test_a_model_of_the_store_is_loaded_by_its_name(server: Server, models: dict[str, MadeModel]) -> None:
    name = "mlflow_xgboost"
    reply = requests.post(server.url(f"/v2/repository/models/{name}/load"), timeout=ASK_SECONDS)
    assert reply.status_code == 200, reply.text
    check(infer(server, name, models[name]), models[name])


def test_versions_of_a_repository_are_of_any_format(binary: Path, models: dict[str, MadeModel], tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    names = [name for name in LAYOUT if name not in ("sklearn_logistic_skops", "xgboost_classes_ubj")]
    for name in names:
        file = LAYOUT[name]
        copied(models[name], repository / name / "1" / file)
    bert(repository / "texts" / "3", "BertForSequenceClassification", ["no", "yes"])
    (repository / "notes" / "1").mkdir(parents=True)
    (repository / "notes" / "1" / "notes.md").write_text("hello")
    for server in served(binary, tmp_path, repository, "--trust"):
        for name in names:
            check(infer(server, name, models[name]), models[name])
        answer = server.predict("texts", {"inputs": "a text"})
        assert answer.status_code == 200, answer.text
        assert {one["label"] for one in answer.json()} <= {"no", "yes"}
        index = requests.post(server.url("/v2/repository/index"), json={}, timeout=ASK_SECONDS).json()
        [notes] = [one for one in index if one["name"] == "notes"]
        assert notes["state"] == "UNAVAILABLE"
        assert notes["reason"].endswith("notes/1/model.onnx is not there")


CONFIG = """
backend: "fil"
max_batch_size: 16
input [ {{ name: "input" data_type: TYPE_FP32 dims: [ {features} ] }} ]
output [ {{ name: "predict" data_type: TYPE_FP32 dims: [ 3 ] }} ]
"""


def test_a_configuration_is_compared_with_the_model(binary: Path, models: dict[str, MadeModel], tmp_path: Path) -> None:
    made, repository = models["xgboost_classes_ubj"], tmp_path / "repository"
    features = made.inputs["input"].shape[1]
    for name, told in (("right", features), ("wrong", features + 1)):
        copied(made, repository / name / "1" / "model.ubj")
        (repository / name / "config.pbtxt").write_text(CONFIG.format(features=told))
    for server in served(binary, tmp_path, repository):
        check(infer(server, "right", made), made)
        assert server.describe("right")["batchSize"] == 16
        index = requests.post(server.url("/v2/repository/index"), json={}, timeout=ASK_SECONDS).json()
        [wrong] = [one for one in index if one["name"] == "wrong"]
        assert f'config.pbtxt:4: the input "input" is declared with dims [-1, {features + 1}]' in wrong["reason"]
