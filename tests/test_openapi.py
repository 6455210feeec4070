"""The API description: every model is in it with its real inputs, and servers keep what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from test_cli import pasted, try_line
from test_repository import adder

APP = '''
import jitney
import numpy as np


@jitney.batch(max_batch_size=8)
def shout(text: list[str]) -> list[str]:
    """Makes it loud."""
    return [one.upper() for one in text]


class Pairs:
    @jitney.batch(max_batch_size=8)
    def mean(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return (ids * mask).mean(axis=1)
'''


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("openapi")
    (home / "app.py").write_text(APP)
    store = Store(home / "store")
    adder(store.path / "add.onnx", 1)
    store.mar("echo")
    server = Server(binary, home / "server", ["serve", store.path, "app:shout"], store=store, cwd=home)
    yield server.started()
    server.end()


def document(server: Server) -> dict:
    return requests.get(server.url("/openapi.json"), timeout=ASK_SECONDS).json()


def test_every_model_is_listed_with_its_inputs(server: Server) -> None:
    paths = document(server)["paths"]
    assert {"/add", "/predictions/add", "/v2/models/add/infer", "/predictions/echo", "/shout"} <= paths.keys()
    body = paths["/predictions/add"]["post"]["requestBody"]["content"]["application/json"]
    assert body["example"] == {"x": [[0.5, 0.5]]}
    row = body["schema"]["properties"]["x"]["items"]
    assert (row["minItems"], row["maxItems"], row["items"]["type"]) == (2, 2, "number")
    for path, item in paths.items():
        for method, operation in item.items():
            example = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
            if example is not None:
                answer = requests.request(method, server.url(path), json=example, timeout=ASK_SECONDS)
                assert answer.status_code == 200, (path, answer.text)


def test_a_description_of_an_onnx_model_tells_its_tensors(server: Server) -> None:
    described = server.manage("GET", "/models/add", customized="true").json()[0]["customizedMetadata"]
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert described["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]


def test_what_a_definition_refuses_has_the_type_of_its_status(server: Server) -> None:
    answer = requests.post(server.url("/shout"), json={"txt": "a"}, timeout=ASK_SECONDS)
    assert (answer.status_code, answer.json()["type"]) == (400, "BadRequestException")
    with jitney.Client(server.urls["inference"]) as client, pytest.raises(jitney.BadInput):
        client.predict("add", {"x": "no number"})


@pytest.mark.parametrize("model", ["add.onnx", "large.onnx", "app:shout", "app:Pairs"])
def test_the_line_that_is_printed_works(start: Callable[..., Server], tmp_path: Path, model: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    adder(tmp_path / "add.onnx", 1)
    adder(tmp_path / "large.onnx", 1, 500)
    server = start("serve", model, cwd=tmp_path)
    name = model.partition(":")[2] or model.partition(".")[0]
    before = server.metric("jitney_requests_answered_total", name)
    assert '"code"' not in pasted(try_line(server.stdout).replace("curl ", "curl --fail-with-body -sS "), tmp_path)
    assert server.metric("jitney_requests_answered_total", name) == before + 1


@pytest.mark.heavy
def test_schemathesis_finds_nothing(server: Server, tmp_path: Path) -> None:
    """Its own command, in an environment of its own: JITNEY_SCHEMATHESIS names it, else it is installed."""
    program = os.environ.get("JITNEY_SCHEMATHESIS") or shutil.which("schemathesis")
    if program is None:
        subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
        subprocess.run([tmp_path / "venv/bin/pip", "install", "-q", "schemathesis>=4,<5"], check=True)
        program = str(tmp_path / "venv/bin/schemathesis")
    (tmp_path / "openapi.json").write_text(json.dumps(document(server)))
    flags = ["--url", server.urls["inference"], "--checks", "all", "--max-examples", "20", "--seed", "1"]
    done = subprocess.run(
        [program, "run", "openapi.json", *flags], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:]
