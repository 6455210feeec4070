"""Models of the Hugging Face hub by their names: from the cache of `huggingface_hub`, and from a hub: `make
test-formats`. The real hub is not asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import requests

from harness import pretrained
from harness.artefacts import ROOT
from harness.formats import MAKERS, MadeModel
from harness.hub import COMMIT, cached, local_hub
from harness.server import ASK_SECONDS, Server

pytest.importorskip("huggingface_hub")

NAME = "acme/flowers"
NOWHERE = "http://127.0.0.1:1"
Start = Callable[..., Server]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeModel:
    """A folder with one model that loads quickly."""
    return MAKERS["xgboost_classes_ubj"](tmp_path_factory.mktemp("flowers"))


def run(binary: Path, env: Mapping[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = list(map(str, [binary, *words]))
    return subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, timeout=ASK_SECONDS, check=False
    )


def answer(server: Server, model: str, made: MadeModel) -> None:
    """Compares the answer with the library's."""
    told = {"input": made.inputs["input"].tolist()}
    reply = requests.post(server.url(f"/predictions/{model}"), json=told, timeout=ASK_SECONDS)
    assert reply.status_code == 200, reply.text
    np.testing.assert_allclose(reply.json()["predict"], made.outputs["predict"], rtol=1e-5)


def test_a_model_of_the_cache_is_served_without_the_hub(start: Start, tmp_path: Path, made: MadeModel) -> None:
    cached(tmp_path / "hf", NAME, made.path.parent)
    home = {"HF_HOME": str(tmp_path / "hf")}
    answer(start("serve", f"hf:{NAME}", env={**home, "HF_HUB_OFFLINE": "1"}), "flowers", made)
    named = start("serve", f"other=hf:{NAME}@{COMMIT}", env={**home, "HF_ENDPOINT": NOWHERE})
    answer(named, "other", made)


@pytest.mark.heavy
def test_a_folder_of_transformers_in_the_cache(binary: Path, tmp_path: Path) -> None:
    import transformers

    folder = pretrained.bert(tmp_path / "mood", "BertForSequenceClassification", pretrained.LABELS["text"])
    cached(tmp_path / "hf", "acme/mood", folder)
    env = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"inputs": one}) + "\n" for one in pretrained.LINES))
    ended = run(binary, env, "infer", "hf:acme/mood", rows, "-o", "-", "--task", "text-classification", "--workers", 1)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line)["output"] for line in ended.stdout.splitlines()]
    library = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    assert [one[0]["label"] for one in found] == [one["label"] for one in library(pretrained.LINES)]


def test_a_model_is_fetched_once_and_without_what_nobody_loads(
    binary: Path, start: Start, tmp_path: Path, made: MadeModel
) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in (made.path.name, "README.md", "tf_model.h5", "onnx/model.onnx"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(made.path.read_bytes() if name == made.path.name else b"other")
    home = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
    with local_hub(NAME, folder) as hub:
        env = {**home, "HF_ENDPOINT": hub.url}
        answer(start("serve", f"hf:{NAME}", env=env), "flowers", made)
        assert sorted(hub.sent) == sorted(["README.md", made.path.name])
        hub.sent.clear()
        told = run(binary, env, "inspect", f"hf:{NAME}", "--json")
        assert told.returncode == 0, told.stdout + told.stderr
        assert json.loads(told.stdout)["serve"] == f"jitney serve hf:{NAME}"
        assert "/predictions/flowers" in json.loads(told.stdout)["call"]
        assert hub.sent == []
        missing = run(binary, env, "serve", "--port", "0", "hf:acme/nothing")
        assert missing.returncode == 1 and "the hub has no model acme/nothing" in missing.stderr
    answer(start("serve", f"hf:{NAME}", env={**home, "HF_ENDPOINT": NOWHERE}), "flowers", made)


@pytest.mark.parametrize(
    ("variables", "token"),
    [({"HF_HUB_TOKEN": "older"}, "older"), ({"HF_TOKEN": "newer", "HF_HUB_TOKEN": "older"}, "newer")],
)
def test_the_token_has_two_names(tmp_path: Path, variables: dict[str, str], token: str) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "README.md").write_text("nothing to serve")
    with local_hub(NAME, folder) as hub:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "HF_HOME": str(tmp_path / "hf"), **variables}
        env |= {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
        code = f"from jitney.loaders.huggingface.hub import located; located('hf:{NAME}')"
        subprocess.run([sys.executable, "-c", code], env=env, timeout=ASK_SECONDS, check=True)
        assert hub.sent == ["README.md"]
        assert hub.tokens - {""} == {f"Bearer {token}"}, "files that anybody may have are asked for without"


@pytest.mark.parametrize("command", ["serve", "inspect", "infer"])
@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": NOWHERE}, "the hub cannot be reached"),
    ],
)
def test_what_is_neither_here_nor_there_says_what_to_do(
    binary: Path, tmp_path: Path, command: str, env: dict[str, str], why: str
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    words = {"serve": ["--port", "0"], "inspect": [], "infer": [rows, "-o", "-"]}[command]
    ended = run(binary, {"HF_HOME": str(tmp_path / "hf"), **env}, command, "hf:acme/none", *words)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert why in said
    assert "hf download acme/none --local-dir DIR" in said
    assert str(tmp_path / "hf") in said
    assert "Traceback" not in said


def test_flags_about_loading_are_for_models_that_are_loaded_here(binary: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    ended = run(binary, {}, "infer", f"{NOWHERE}/predictions/m", rows, "-o", "-", "--trust")
    assert ended.returncode == 64
    assert "--trust and --task are for models that this program loads itself" in ended.stderr


def test_torchserves_name_for_fetching_gives_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "README.md"):
        (folder / name).write_text(name)
    code = (
        "import sys; from ts.utils.hf_utils import download_model;"
        f"print(download_model({NAME!r}, model_path=sys.argv[1], use_auth_token=False))"
    )
    with local_hub(NAME, folder) as hub:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-c", code, str(tmp_path / "cache")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        assert sorted(hub.sent) == ["config.json", "model.safetensors"], "what a model needs, and no more"
    fetched = Path(done.stdout.strip())
    assert sorted(one.name for one in fetched.iterdir()) == ["config.json", "model.safetensors"]
