"""Repositories: folders of models in Triton's layout or as they are, loaded, unloaded and followed by name."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from harness import onnx
from harness.archives import Store
from harness.package import ROOT
from harness.server import ASK_SECONDS, Server
from harness.wait import until

Start = Callable[..., Server]

CONFIG = """
platform: "onnxruntime_onnx"
max_batch_size: 16
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { max_queue_delay_microseconds: 2000 }
version_policy { all { } }
"""


def adder(path: Path, add: float, width: int = 2) -> Path:
    """`y = x + add`, for rows of so many numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    row = [onnx.value(name, onnx.FLOAT, ["n", width]) for name in "xy"]
    weight = onnx.tensor(onnx.FLOAT, [1], struct.pack("<f", add), "b")
    return onnx.write(path, [onnx.node("Add", ["x", "b"], "y")], row[:1], row[1:], [weight])


def repository(home: Path) -> Path:
    """Models of every kind, and two that cannot be served."""
    home.mkdir()
    for version in (1, 2):
        adder(home / f"add/{version}/model.onnx", version)
    (home / "add/config.pbtxt").write_text(CONFIG)
    adder(home / "plain.onnx", 10)
    adder(home / "auto/7/model.onnx", 20)
    (home / "python/1").mkdir(parents=True)
    (home / "python/config.pbtxt").write_text('backend: "tensorrt"')
    adder(home / "wrong/1/model.onnx", 1)
    (home / "wrong/config.pbtxt").write_text(CONFIG.replace("dims: [ 2 ] } ]\noutput", "dims: [ 3 ] } ]\noutput"))
    return home


def ask(server: Server, path: str, body: Any = None, headers: dict[str, str] | None = None) -> requests.Response:
    return requests.post(server.url(path), json=body, headers=headers, timeout=ASK_SECONDS)


def index(server: Server) -> dict[tuple[str, str | None], tuple[str, str]]:
    rows = ask(server, "/v2/repository/index").json()
    return {(row["name"], row.get("version")): (row["state"], row.get("reason", "")) for row in rows}


def added(server: Server, model: str, version: str | None = None) -> float:
    """What the model adds to 1."""
    path = f"/predictions/{model}" + (f"/{version}" if version else "")
    answer = ask(server, path, {"x": [[1.0, 1.0]]})
    assert answer.status_code == 200, answer.text
    return json.loads(re.search(r"\[\[.*?\]\]", answer.text.replace("\n", "").replace(" ", ""))[0])[0][0] - 1


def test_a_folder_is_served_as_it_is(start: Start, tmp_path: Path) -> None:
    folder = repository(tmp_path / "models")
    shutil.copy(Store(tmp_path / "store").mar("echo"), folder)
    server = start("serve", folder)
    assert [added(server, "add"), added(server, "add", "1")] == [2, 1], "the newest answers"
    assert [added(server, "plain"), added(server, "auto")] == [10, 20]
    assert server.predict("echo", b"hello").text == "hello"
    described = server.describe("add")
    assert (described["minWorkers"], described["batchSize"], described["maxBatchDelay"]) == (2, 16, 2)
    states = index(server)
    assert {key for key, (state, _) in states.items() if state == "READY"} == {
        ("add", "1"),
        ("add", "2"),
        ("auto", "7"),
        ("echo", "1.0"),
        ("plain", "1.0"),
    }
    assert states["python", None][0] == "UNAVAILABLE"
    assert 'config.pbtxt:1: backend "tensorrt" is not supported' in states["python", None][1]
    wrong = states["wrong", "1"]
    assert wrong[0] == "UNAVAILABLE"
    assert re.search(r'wrong/config.pbtxt:4: the input "x" is declared with dims \[-1, 3\]', wrong[1])
    server.logged("not served: ")
    ready = ask(server, "/v2/repository/index", {"ready": True}).json()
    assert {row["state"] for row in ready} == {"READY"}


def test_models_come_and_go_by_name(start: Start, tmp_path: Path) -> None:
    folder = repository(tmp_path / "models")
    server = start("serve", folder)
    load, unload = "/v2/repository/models/add/load", "/v2/repository/models/add/unload"
    gone = ask(server, unload)
    assert (gone.status_code, gone.json()) == (200, {"name": "add", "unload": True})
    assert ask(server, "/predictions/add", {"x": [[1, 1]]}).status_code == 404
    assert index(server)["add", "2"] == ("UNAVAILABLE", "unloaded")
    assert ask(server, load, {}).status_code == 200
    assert added(server, "add") == 2
    adder(folder / "add/3/model.onnx", 3)
    (folder / "add/config.pbtxt").write_text(CONFIG.replace("all { }", "latest { num_versions: 1 }"))
    assert ask(server, load).status_code == 200
    assert added(server, "add") == 3
    assert ask(server, "/predictions/add/1", {"x": [[1, 1]]}).status_code == 404, "the policy is obeyed"
    (folder / "add/3/model.onnx").write_bytes(b"no model")
    failed = ask(server, load)
    assert failed.status_code == 400
    assert "failed to load 'add'" in failed.json()["message"]
    assert added(server, "add") == 3, "the old one stays"


def test_clients_name_models_of_the_repository_and_nothing_else(start: Start, tmp_path: Path) -> None:
    folder = repository(tmp_path / "models")
    adder(tmp_path / "secret.onnx", 1)
    server = start("serve", folder)
    load = "/v2/repository/models/plain/load"
    for body, why in (
        ({"parameters": {"config": "{}"}}, "a configuration is not taken from clients"),
        ({"parameters": {"file:1/model.onnx": "AAAA"}}, "files are not taken from clients"),
        ({"parameters": {"x": 1}}, 'The parameter "x" is unknown.'),
        ({"parameters": 1}, '"parameters" is an object, not 1.'),
        ([], "The body is no JSON object."),
    ):
        refused = ask(server, load, body)
        assert refused.status_code == 400, body
        assert why in refused.json()["message"]
    for name in ("nobody", "..%2Fsecret", "%2e%2e", "secret"):
        unknown = ask(server, f"/v2/repository/models/{name}/load")
        assert unknown.status_code == 404, name
        assert ask(server, f"/v2/repository/models/{name}/unload").status_code == 404, name
    assert requests.get(server.url("/v2/repository/index"), timeout=ASK_SECONDS).status_code == 405


def test_loading_needs_the_management_key(start: Start, tmp_path: Path) -> None:
    folder = repository(tmp_path / "models")
    server = start("serve", folder, "--token-auth", wait_for_workers=False)
    keys = json.loads((server.cwd / "key_file.json").read_text())
    path = "/v2/repository/models/plain/unload"
    for kind, status in (("inference", 400), ("management", 200)):
        headers = {"Authorization": f"Bearer {keys[kind]['key']}"}
        assert ask(server, path, headers=headers).status_code == status, kind
        assert ask(server, "/v2/repository/index", headers=headers).status_code == status, kind
    assert ask(server, path).status_code == 400


def test_a_model_that_was_named_by_itself_can_be_loaded_again(start: Start, store: Store) -> None:
    server = start("serve", store.mar("echo"))
    assert ask(server, "/v2/repository/models/echo/unload").status_code == 200
    assert server.predict("echo", b"x").status_code == 404
    assert ask(server, "/v2/repository/models/echo/load").status_code == 200
    assert server.predict("echo", b"x").text == "x"


def test_polling_follows_the_folder(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    adder(folder / "a/1/model.onnx", 1)
    server = start("serve", folder, "--poll", "100ms")
    assert added(server, "a") == 1
    adder(folder / "a/2/model.onnx", 2)
    until(lambda: added(server, "a") == 2, "the new version answers")
    adder(folder / "new.onnx", 5)
    until(lambda: ("new", "1.0") in index(server), "the new model is there")
    until(lambda: index(server)["new", "1.0"][0] == "READY", "and ready")
    (folder / "a/2/model.onnx").write_bytes(b"broken")
    server.logged("version 2 stays")
    assert added(server, "a") == 2
    shutil.rmtree(folder / "a")
    server.logged("removed from the repository")
    assert ("a", "2") not in index(server)
    assert added(server, "new") == 5


def test_polling_follows_a_folder_that_begins_with_one_model(start: Start, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    store.directory("echo")
    server = start("serve", store.path, "--poll", "100ms")
    assert server.predict("echo", b"x").status_code == 200
    store.directory("other", "echo")
    until(lambda: ("other", "1.0") in index(server), "the new model is there")
    until(lambda: index(server)["other", "1.0"][0] == "READY", "and ready")


def test_the_lines_of_the_page_work(start: Start, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "repositories.md").read_text()
    folder = tmp_path / "models"
    for version in (1, 2):
        adder(folder / f"add/{version}/model.onnx", version)
    config = re.search(r"^```pbtxt\n(platform.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    (folder / "add/config.pbtxt").write_text(config.replace("dims: [ 3 ]", "dims: [ 2 ]"))
    lines = [
        line
        for block in re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    serving = [line for line in lines if line.startswith("jitney serve")]
    server = start(*serving[-1].removeprefix("jitney ").split(), cwd=tmp_path)
    for line in lines:
        if line.startswith("curl"):
            command = line.replace("localhost:8080", server.urls["inference"]) + " --fail-with-body -sS"
            done = subprocess.run(command.split(), capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert added(server, "add") == 2


def test_clients_set_sizes_where_the_operator_allows_it(start: Start, tmp_path: Path) -> None:
    folder = repository(tmp_path / "models")
    load = "/v2/repository/models/add/load"
    asked = {"parameters": {"config": '{"max_batch_size": "12", "instance_group": [{"count": 1}]}'}}
    refused = ask(start("serve", folder), load, asked)
    assert refused.status_code == 400 and "failed to load: a configuration is not taken" in refused.text
    server = start("serve", folder, "--allow-client-config")
    assert ask(server, load, asked).status_code == 200
    assert (server.describe("add")["batchSize"], server.describe("add")["minWorkers"]) == (12, 1)
    for key in ("backend", "default_model_filename", "parameters"):
        wrong = ask(server, load, {"parameters": {"config": json.dumps({key: "x"})}})
        assert wrong.status_code == 400 and "failed to load" in wrong.text, key
    assert ask(server, load, {"parameters": {"file:1/model.onnx": "eA=="}}).status_code == 400
    assert ask(server, load).status_code == 200, "the file counts again"
    assert server.describe("add")["batchSize"] == 16
