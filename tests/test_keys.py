"""Keys of config.properties that change what workers see or may answer."""

from __future__ import annotations

import json
from pathlib import Path

from harness.archives import Store
from harness.server import FREE_ADDRESSES, Server


def torchserve(start, tmp_path: Path, store: Store, text: str) -> Server:
    """A server where anyone may register models."""
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + text)
    flags = ["--foreground", "--ncs", "--disable-token-auth", "--enable-model-api"]
    arguments = ["torchserve", "--start", *flags, "--model-store", store.path, "--ts-config", config]
    return start(*arguments, wait_for_workers=False)


def test_an_answer_beyond_max_response_size_fails_alone(start, tmp_path: Path, store: Store) -> None:
    server = torchserve(start, tmp_path, store, "max_response_size=1000\n")
    server.register(store.mar("echo"))
    pids = server.ready("echo")
    assert server.predict("echo", b"x" * 1000).status_code == 200
    rejected = server.predict("echo", b"x" * 1001)
    assert (rejected.status_code, rejected.json()["type"]) == (500, "InternalServerException")
    assert rejected.json()["message"] == "The response has 1001 bytes, more than max_response_size=1000."
    assert server.predict("echo", b"still here").text == "still here"
    assert server.ready("echo") == pids


def test_keys_reach_the_workers_or_say_what_to_use_instead(start, tmp_path: Path, store: Store) -> None:
    text = "debug=true\nipex_enable=true\ncpu_launcher_enable=true\ninitial_distribution_port=1234\n"
    store.mar("surroundings")
    server = torchserve(start, tmp_path, store, f"{text}load_models=surroundings.mar\n")
    server.logged("cpu_launcher_enable has no effect: `cpus: auto` below `jitney:`")
    server.logged("initial_distribution_port has no effect")
    assert server.describe("surroundings")["minWorkers"] == 1
    assert server.describe("surroundings")["responseTimeout"] > 100_000
    server.logged("model ready")
    seen = json.loads(server.predict("surroundings", b"x").text)
    assert seen["environment"]["TS_IPEX_ENABLE"] == "true"
    assert "TS_IPEX_GPU_ENABLE" not in seen["environment"]
