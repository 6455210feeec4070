"""Every `modelFormat` of the runtime `jitney-files`, with its own command and the libraries of the formats.

It runs in the environment `formats`, where these libraries are: `make test-formats`. The container around it, its
walls and its probes, are what test_deploy.py starts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.format_answers import check, infer
from harness.formats import MAKERS
from harness.pretrained import LABELS, bert
from harness.server import ASK_SECONDS, Server

pytest.importorskip("skops", reason="the environment `formats` has what these models are made with")
yaml = pytest.importorskip("yaml")

LOAD_SECONDS = 600
RUNTIMES = Path(__file__).parents[1] / "deploy/kserve/runtimes.yaml"
MOUNT = "/mnt/models"
HUGGING_FACE = "huggingface"
FORMATS = {
    "sklearn": "sklearn_logistic_skops",
    "xgboost": "xgboost_classes_json",
    "lightgbm": "lightgbm_classes",
    "catboost": "catboost_classes",
    "mlflow": "mlflow_xgboost",
    "openvino_ir": "openvino_batches",
    "torch_export": "torch_export_batches",
    HUGGING_FACE: "",
}
"""A model of each; that of Hugging Face is made here."""


def runtime() -> dict:
    """What the manifest says of `jitney-files`."""
    documents = yaml.safe_load_all(RUNTIMES.read_text())
    return next(one["spec"] for one in documents if one["metadata"]["name"] == "jitney-files")


def test_every_format_of_the_runtime_is_tried() -> None:
    assert {one["name"] for one in runtime()["supportedModelFormats"]} == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_the_runtime_serves_a_model_of_each_format(start: Callable[..., Server], tmp_path: Path, name: str) -> None:
    mounted, made_in = tmp_path / "mounted", tmp_path / "made"
    made_in.mkdir()
    if name == HUGGING_FACE:
        bert(mounted, "BertForSequenceClassification", LABELS["text"])
    else:
        made = MAKERS[FORMATS[name]](made_in)
        shutil.copytree(made.path if made.path.is_dir() else made_in, mounted)
    (container,) = runtime()["containers"]
    command = [word.replace("{{.Name}}", "shop").replace(MOUNT, str(mounted)) for word in container["command"]]
    assert command[0] == "jitney"
    server = start(*command[1:], start_seconds=LOAD_SECONDS)
    assert requests.get(server.url("/v2/models/shop/ready"), timeout=ASK_SECONDS).status_code == 200
    if name == HUGGING_FACE:
        reply = requests.post(server.url("/shop"), json={"inputs": "I liked it"}, timeout=ASK_SECONDS)
        assert reply.json()[0]["label"] in LABELS["text"], reply.text
    else:
        check(infer(server, "shop", made), made)
