"""SageMaker's multi-model endpoints with the real binary: the five calls, and memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness import processes
from harness.sagemaker import ADDER, PLACE, folder, invoke
from harness.server import Server


@pytest.fixture
def many(start: Callable[..., Server], tmp_path: Path) -> Server:
    """A multi-model endpoint without models."""
    env = {"SAGEMAKER_BASE_DIR": str(tmp_path / "ml"), "SAGEMAKER_MULTI_MODEL": "true"}
    return start("serve", "--host", "127.0.0.1", env=env, wait_for_workers=False)


def load(server: Server, name: str, url: Path | str) -> requests.Response:
    """SageMaker's call that loads a model."""
    return requests.post(server.url("/models"), json={"model_name": name, "url": str(url)}, timeout=120)


def test_the_five_calls_of_a_multi_model_endpoint(many: Server, tmp_path: Path) -> None:
    base = tmp_path / "ml" / "models"
    assert requests.get(many.url("/ping"), timeout=120).status_code == 200, "it starts without a model"
    assert requests.get(many.url("/models"), timeout=120).json() == {"models": []}
    one = folder(base / "one", ADDER, weights_txt="10")
    two = folder(base / "two", ADDER, weights_txt="20")
    assert load(many, "one", one).json() == {"status": 'Model "one" Version: 1.0 registered with 1 initial workers'}
    assert load(many, "two", two).status_code == 200
    entries = [{"modelName": "one", "modelUrl": str(one)}, {"modelName": "two", "modelUrl": str(two)}]
    assert requests.get(many.url("/models"), timeout=120).json() == {"models": entries}
    assert requests.get(many.url("/models/two"), timeout=120).json() == entries[1]
    assert requests.get(many.url("/models/three"), timeout=120).status_code == 404
    target = {"X_Amzn_SageMaker_Target_Model": "one.tar.gz"}
    assert invoke(many, [1], "/models/one/invoke", **target).json() == [11]
    assert invoke(many, [1], "/models/two/invoke").json() == [21], "each has its own inference.py and weights"
    assert load(many, "one", one).status_code == 409
    assert load(many, "three", base / "three" / "model").status_code == 404
    workers = processes.marked(many.mark)
    assert requests.delete(many.url("/models/one"), timeout=120).json() == {"status": 'Model "one" unregistered'}
    gone = set(workers) - set(processes.marked(many.mark))
    assert len(gone) == 1, "its worker has ended when the answer comes"
    assert invoke(many, [1], "/models/one/invoke").status_code == 404
    assert requests.delete(many.url("/models/one"), timeout=120).status_code == 404
    assert requests.get(many.url("/ping"), timeout=120).status_code == 200


def test_models_come_from_the_folder_of_models_only(many: Server, tmp_path: Path) -> None:
    outside = folder(tmp_path / "elsewhere", ADDER, weights_txt="1")
    assert load(many, "m", outside).status_code in (400, 403, 404)
    assert load(many, "m", f"{tmp_path}/ml/models/../../elsewhere/model").status_code in (400, 403, 404)
    assert requests.get(many.url("/models"), timeout=120).json() == {"models": []}


def test_a_model_that_would_not_fit_is_507_before_it_is_loaded(many: Server, tmp_path: Path) -> None:
    model = folder(tmp_path / "ml" / "models" / "huge", "raise SystemExit('this is never imported')")
    with (model / "weights.bin").open("wb") as weights:
        weights.truncate(1 << 43)
    reply = load(many, "huge", model)
    assert reply.status_code == 507 and "MiB are free" in reply.json()["message"]
    assert requests.get(many.url("/models"), timeout=120).json() == {"models": []}
    (model / "weights.bin").unlink()
    (model / "code" / "inference.py").write_text(PLACE)
    assert load(many, "huge", model).status_code == 200
    assert "never imported" not in many.log


def test_a_model_without_memory_is_507(many: Server, tmp_path: Path) -> None:
    model = folder(tmp_path / "ml" / "models" / "big", "def model_fn(model_dir):\n    raise MemoryError\n")
    assert load(many, "big", model).status_code == 507
    assert requests.get(many.url("/models"), timeout=120).json() == {"models": []}
