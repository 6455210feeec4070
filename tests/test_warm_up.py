"""A handler that warms itself up: the server shows how far it is, and takes over what it found."""

from __future__ import annotations

import json
from pathlib import Path

import requests

from harness.archives import Store
from harness.server import Server
from harness.wait import until

WARM = """
import os
import time
from types import SimpleNamespace


class Warm:
    def initialize(self, context):
        self.context = context

    def warm_up(self, progress):
        progress(1, 2, "captured batch size 1")
        while not os.path.exists(os.environ["OPENED"]):
            time.sleep(0.01)
        measured = [(1, 100, 900), (4, 200, 1800)]
        notes = ["runs at batch sizes 1 and 4"]
        return SimpleNamespace(sizes=[1, 4], measured=measured, graphs=2, bytes=77, notes=notes)

    def handle(self, data, context):
        told = {"lengths": self.context.batch_lengths, "cache": self.context.compile_cache}
        return [told for _ in data or []]
"""

CONFIG = "batching: {max_batch_size: 4, lengths: [32, 64]}\npt2: {compile: {enable: false}}\n"


def test_a_handler_warms_up_before_it_is_ready(start, store: Store, tmp_path: Path) -> None:
    env = {"OPENED": str(tmp_path / "opened")}
    archive = store.mar("warm", source=WARM, config=CONFIG)
    server: Server = start("serve", archive, "--model-store", store.path, env=env, wait_for_workers=False)
    until(lambda: any("progress" in worker for worker in server.describe("warm")["workers"]), "a step is shown")
    described = server.describe("warm")
    assert described["workers"][0]["progress"] == {"done": 1, "of": 2, "what": "captured batch size 1"}
    assert described["state"] == "loading (0 of 1 workers ready; captured batch size 1, 1 of 2)"
    (tmp_path / "opened").touch()
    until(lambda: server.ready("warm"), "it is ready")
    described = server.describe("warm")
    assert (described["sizes"], described["lengths"]) == ([1, 4], [32, 64])
    assert described["workers"][0]["graphs"] == {"count": 2, "bytes": 77}
    assert "progress" not in described["workers"][0]
    server.logged("runs at batch sizes")
    batching = requests.get(server.url("/models/warm/batching", "management"), timeout=120).json()
    assert batching["sizes"] == [1, 4]
    assert [point["size"] for point in batching["curve"]] == [1, 4], "what it measured is learned"
    told = json.loads(server.predict("warm", b"x").text)
    assert told["lengths"] == [32, 64]
    cache = Path(told["cache"])
    assert cache.parent == store.path / ".compiled" and len(cache.name) == 64 and cache.is_dir()
    server.end()
    assert cache.is_dir(), "it is there for the next start"
