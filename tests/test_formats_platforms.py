"""Models without code in the containers of clouds: folders that name no functions are served by their formats.

It runs in the environment `formats`, where the libraries of these formats are: `make test-formats`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import requests

from harness.clouds import one_cloud
from harness.formats import MAKERS, MadeModel
from harness.server import ASK_SECONDS, Server

pytest.importorskip("skops", reason="the environment `formats` has what these models are made with")

LOAD_SECONDS = 600
Start = Callable[..., Server]


def made_in(home: Path, name: str) -> MadeModel:
    """A model of the table."""
    home.mkdir()
    return MAKERS[name](home)


def base_with(made: MadeModel, base: Path) -> Path:
    """SageMaker's folder with the model in it; that of a folder is its content."""
    model = base / "model"
    if made.path.is_dir():
        shutil.copytree(made.path, model)
    else:
        model.mkdir(parents=True)
        shutil.copy(made.path, model)
    return base


@pytest.mark.parametrize(
    "name", ["sklearn_logistic_skops", "xgboost_classes_json", "mlflow_xgboost", "torch_export_batches"]
)
def test_sagemakers_folder_is_served_by_its_format(start: Start, tmp_path: Path, name: str) -> None:
    made = made_in(tmp_path / "made", name)
    env = {"SAGEMAKER_BASE_DIR": str(base_with(made, tmp_path / "ml")), "SAGEMAKER_MODEL_SERVER_WORKERS": "1"}
    server = start("serve", "--host", "127.0.0.1", env=env, start_seconds=LOAD_SECONDS)
    assert requests.get(server.url("/ping"), timeout=ASK_SECONDS).status_code == 200
    body = {one: value.tolist() for one, value in made.inputs.items()}
    reply = requests.post(server.url("/invocations"), json=body, timeout=ASK_SECONDS)
    assert reply.status_code == 200, reply.text
    for one, expected in made.outputs.items():
        np.testing.assert_allclose(reply.json()[one], expected, rtol=1e-5, atol=1e-6)


def test_a_pickle_wants_trust_on_sagemaker_too(start: Start, binary: Path, tmp_path: Path) -> None:
    made = made_in(tmp_path / "made", "sklearn_ridge_pickle")
    env = {"SAGEMAKER_BASE_DIR": str(base_with(made, tmp_path / "ml")), "SAGEMAKER_MODEL_SERVER_WORKERS": "1"}
    command = [str(binary), "serve", "--host", "127.0.0.1", "--port", "0"]
    ended = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True,
                           timeout=LOAD_SECONDS, check=False)  # fmt: skip
    assert ended.returncode == 1 and "is a pickle" in ended.stderr, ended.stderr
    server = start("serve", "--host", "127.0.0.1", env={**env, "JITNEY_TRUST": "true"}, start_seconds=LOAD_SECONDS)
    body = {one: value.tolist() for one, value in made.inputs.items()}
    reply = requests.post(server.url("/invocations"), json=body, timeout=ASK_SECONDS)
    np.testing.assert_allclose(reply.json()["predict"], made.outputs["predict"])


def test_vertexs_artifacts_are_served_by_their_format(start: Start, tmp_path: Path) -> None:
    made = made_in(tmp_path / "made", "xgboost_regression_ubj")
    routes = {"AIP_MODE": "PREDICTION", "AIP_PREDICT_ROUTE": "/p", "AIP_HEALTH_ROUTE": "/h"}
    with one_cloud() as cloud:
        cloud.put("models/net", {made.path.name: made.path.read_bytes()})
        bucket = {"AIP_STORAGE_URI": "gs://models/net", "GOOGLE_BASE_URL": cloud.base, **cloud.proxied}
        server = start("serve", "--host", "127.0.0.1", env={**routes, **bucket}, start_seconds=LOAD_SECONDS)
    assert requests.get(server.url("/h"), timeout=ASK_SECONDS).status_code == 200
    instances = [{"input": row.tolist()} for row in made.inputs["input"]]
    reply = requests.post(server.url("/p"), json={"instances": instances}, timeout=ASK_SECONDS)
    assert reply.status_code == 200, reply.text
    found = [one["predict"] if isinstance(one, dict) else one for one in reply.json()["predictions"]]
    np.testing.assert_allclose(np.ravel(found), made.outputs["predict"], rtol=1e-5)
