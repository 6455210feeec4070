"""Archives with `handler: vllm_handler`: vLLM's application runs in the worker, and OpenAI's clients use it.

vLLM is a stand-in (harness.vllm_stand_in) that fails on calls which the real one does not have.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import requests

from harness import vllm_stand_in
from harness.archives import Store
from harness.server import ASK_SECONDS, Server
from harness.wait import until

Start = Callable[..., Server]
SETTINGS = {
    "minWorkers": 1,
    "batchSize": 1,
    "responseTimeout": 1200,
    "deviceType": "cpu",
    "asyncCommunication": True,
    "handler": {
        "model_path": "weights",
        "vllm_engine_config": {
            "max_num_seqs": 16,
            "max_model_len": None,
            "served_model_name": ["tiny"],
            "enforce_eager": True,
            "override_generation_config": {"temperature": 0.5},
        },
        "adapters": {"polite": "adapters/polite"},
    },
}


def archive(store: Store, name: str, version: str = "0.33.0", settings: Any = SETTINGS) -> Path:
    """An archive as TorchServe's archiver makes it, with the stand-in among its files."""
    files = {**vllm_stand_in.files(version), "weights/config.json": "{}", "adapters/polite/adapter.json": "{}"}
    made = store.directory(name, "echo", entry="vllm_handler", config=json.dumps(settings), files=files)
    (made / "handler.py").unlink()
    return made


@pytest.mark.parametrize("version", vllm_stand_in.VERSIONS)
def test_an_archive_answers_openais_clients_at_the_root(start: Start, store: Store, version: str) -> None:
    server = start("serve", archive(store, "llm", version))
    client = openai.OpenAI(base_url=server.url("/v1"), api_key="none", max_retries=0)
    chat = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "good day"}])
    assert chat.choices[0].message.content == "good day"
    stream = client.completions.create(model="llm", prompt="one two three", stream=True)
    assert [one.choices[0].text for one in stream] == ["one", "two", "three"]
    assert client.responses.create(model="weights", input="well").output_text == "well"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(model="other", prompt="x")
    of_model = openai.OpenAI(base_url=server.url("/llm/v1"), api_key="none", max_retries=0)
    assert of_model.completions.create(model="tiny", prompt="by name").choices[0].text == "by name"
    assert [one.id for one in of_model.models.list()] == ["llm", "weights", "tiny"]


def test_torchserves_settings_become_vllms_options(start: Start, store: Store) -> None:
    made = archive(store, "llm")
    server = start("serve", made)
    told = requests.get(server.url("/predictions/llm/1.0/v1/models"), timeout=ASK_SECONDS).json()["options"]
    folder = Path(told["model"])
    assert folder.name == "weights" and (folder / "config.json").is_file()
    assert told["lora_modules"] == [f"polite={folder.parent}/adapters/polite"]
    expected = {"max_num_seqs": 16, "enforce_eager": True, "enable_lora": True}
    assert {key: told[key] for key in expected} == expected
    assert told["override_generation_config"] == {"temperature": 0.5} and "max_model_len" not in told


def test_torchserves_paths_lead_to_it_under_torchserves_command(start: Start, store: Store) -> None:
    archive(store, "llm")
    words = ("--start", "--foreground", "--ncs", "--disable-token-auth", "--model-store", store.path, "--models", "llm")
    properties = store.path / "config.properties"
    ports = {"inference_address": "http://127.0.0.1:0", "management_address": "http://127.0.0.1:0"}
    ports |= {"metrics_address": "http://127.0.0.1:0", "grpc_inference_port": "0", "grpc_management_port": "0"}
    properties.write_text("".join(f"{key}={value}\n" for key, value in ports.items()))
    server = start("torchserve", *words, "--ts-config", properties)
    asked = {"model": "tiny", "prompt": "a b", "stream": True}
    url = server.url("/predictions/llm/1.0/v1/completions")
    reply = requests.post(url, json=asked, timeout=ASK_SECONDS)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.text.endswith("data: [DONE]\n\n") and reply.text.count("data:") == 3
    whole = requests.post(url, json={**asked, "stream": False}, timeout=ASK_SECONDS)
    assert (whole.json()["choices"][0]["text"], whole.headers["x-from"]) == ("a b", "vllm")
    broken = requests.post(url, data=b"{", headers={"content-type": "application/json"}, timeout=ASK_SECONDS)
    assert (broken.status_code, broken.json()["error"]["message"]) == (400, "no JSON")
    root = requests.post(server.url("/v1/completions"), json={**asked, "stream": False}, timeout=ASK_SECONDS)
    assert root.json()["choices"][0]["text"] == "a b"
    other = requests.post(server.url("/predictions/llm/1.0/v1/other"), json=asked, timeout=ASK_SECONDS)
    assert other.status_code == 404 and "v1/chat/completions" in other.text


def test_a_client_that_leaves_ends_its_text(start: Start, store: Store) -> None:
    server = start("serve", archive(store, "llm"))
    asked = {"model": "tiny", "prompt": "for forever", "stream": True}
    with requests.post(server.url("/v1/completions"), json=asked, stream=True, timeout=ASK_SECONDS) as reply:
        lines = reply.iter_lines()
        assert b"for" in next(lines)
    cancelled = lambda: requests.get(server.url("/llm/v1/models"), timeout=ASK_SECONDS).json()["cancelled"] == 1  # noqa: E731
    until(cancelled, "the application is told that the client left")


def test_a_dead_engine_ends_its_worker_and_another_one_answers(start: Start, store: Store) -> None:
    server = start("serve", archive(store, "llm"))
    (first,) = server.ready("llm").values()
    dead = requests.post(server.url("/v1/completions"), json={"model": "llm", "prompt": "die"}, timeout=ASK_SECONDS)
    assert (dead.status_code, dead.json()["error"]["message"]) == (500, "EngineDeadError")
    until(lambda: first not in (found := server.ready("llm").values()) and found, "another worker is ready")
    again = requests.post(server.url("/v1/completions"), json={"model": "llm", "prompt": "on"}, timeout=ASK_SECONDS)
    assert again.json()["choices"][0]["text"] == "on"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vllm_engine_config": {"model": "weights", "colour": 1}}, "does not take these options"),
        ({"vllm_engine_config": {"model": "weights", "colour": True}}, "has no option 'colour'"),
        ({"vllm_engine_config": {}}, "names no model"),
    ],
)
def test_settings_that_vllm_does_not_know_are_named(start: Start, store: Store, change: Any, said: str) -> None:
    server = start("serve", "--model-store", store.path)
    archive(store, "wrong", settings={**SETTINGS, "handler": change, "maxRetryTimeoutInSec": 1})
    server.manage("POST", "/models", url="wrong", initial_workers=1, synchronous="true")
    server.logged(said)


def test_without_vllm_it_says_what_to_install(start: Start, store: Store) -> None:
    server = start("serve", "--model-store", store.path)
    made = store.directory("bare", "echo", entry="vllm_handler", config=json.dumps(SETTINGS))
    assert made.is_dir()
    server.manage("POST", "/models", url="bare", initial_workers=1)
    server.logged("pip install vllm==0.33.0")


def test_an_archive_for_tensorrt_llm_is_not_made(binary: Path, tmp_path: Path) -> None:
    words = ["--model-name", "trt", "--version", "1.0", "--handler", "trt_llm_handler", "--export-path", str(tmp_path)]
    made = subprocess.run([binary, "archive", *words], capture_output=True, text=True, timeout=ASK_SECONDS)
    assert made.returncode == 1 and "--handler vllm_handler" in made.stderr
    assert list(tmp_path.iterdir()) == []


def test_torchserves_launcher_writes_the_archive(binary: Path, tmp_path: Path) -> None:
    """Its `jitney` is a program that notes how it was called, and ends."""
    program = tmp_path / "jitney"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/called\ncp -r {tmp_path}/store/model {tmp_path}/seen 2>&1\n'
    )
    program.chmod(0o755)
    packages = Path(__file__).parents[1] / "python"
    env = {"JITNEY_BIN": str(program), "PYTHONPATH": str(packages), "PATH": "/usr/bin:/bin"}
    words = ["-m", "ts.llm_launcher", "--model_id", "some/model", "--model_store", "store", "--disable_token_auth"]
    ran = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=ASK_SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    called = (tmp_path / "called").read_text().splitlines()
    assert any("--start --model-store store --models model" in one and "--disable-token-auth" in one for one in called)
    settings = json.loads((tmp_path / "seen" / "model-config.yaml").read_text())
    assert settings["handler"]["model_path"] == "some/model" and settings["asyncCommunication"] is True
    manifest = json.loads((tmp_path / "seen" / "MAR-INF" / "MANIFEST.json").read_text())
    assert manifest["model"]["handler"] == "vllm_handler"
    assert not (tmp_path / "store" / "model").exists()
