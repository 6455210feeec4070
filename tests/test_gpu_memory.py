"""Workers are placed by the free memory of GPUs. The machine needs none: `nvidia-smi` is a script here."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.server import ASK_SECONDS, FREE_ADDRESSES, Server
from harness.wait import until

SMI = """#!{python}
import pathlib
import sys

folder = pathlib.Path({folder!r})
gone = (folder / "gone").read_text().split()
gpus = [gpu for gpu in ("0", "1") if gpu not in gone]
for gpu in gpus:
    if sys.argv[1] == "-L":
        print(f"GPU {{gpu}}: NVIDIA H200 (UUID: GPU-{{gpu}})")
    elif "uuid" in sys.argv[1]:
        used = int((folder / f"others-{{gpu}}").read_text())
        for file in folder.glob(f"held-{{gpu}}-*"):
            if pathlib.Path("/proc", file.name.split("-")[2]).exists():
                used += int(file.read_text())
        print(f"{{gpu}}, GPU-{{gpu}}, {{used}}, 4096")
    else:
        print(f"{{gpu}}, 37, 12, 1024, 4096")
"""
"""Lists two GPUs of 4 GiB each, with what workers and others hold there."""

MODEL = """
import os
import pathlib

FOLDER = pathlib.Path({folder!r})


def handle(data, context):
    gpu = context.system_properties["gpu_id"]
    if str(gpu) in (FOLDER / "broken").read_text().split():
        raise RuntimeError("CUDA error: unspecified launch failure")
    if {mebibytes}:
        (FOLDER / f"held-{{gpu}}-{{os.getpid()}}").write_text("{mebibytes}")
    return [f"{{gpu}}" for _ in data or []]
"""
"""A worker holds so many MiB of its GPU as soon as it has loaded."""


class Gpus:
    """The two GPUs of a machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "nvidia-smi").write_text(SMI.format(python=sys.executable, folder=str(folder)))
        (folder / "nvidia-smi").chmod(0o755)
        for name, text in [("gone", ""), ("broken", ""), ("others-0", "0"), ("others-1", "0")]:
            self.set(name, text)

    def set(self, name: str, text: str) -> None:
        """Says which are gone or broken, or what others hold on one."""
        (self.folder / f"{name}.new").write_text(text)
        (self.folder / f"{name}.new").rename(self.folder / name)

    def held(self, gpu: int) -> int:
        """MiB that processes hold that are there."""
        files = [file for file in self.folder.glob(f"held-{gpu}-*") if Path("/proc", file.name.split("-")[2]).exists()]
        return sum(int(file.read_text()) for file in files)

    def env(self) -> dict[str, str]:
        """The environment of a server that finds them."""
        return {"PATH": f"{self.folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    """Two GPUs of 4 GiB each."""
    (tmp_path / "tools").mkdir()
    return Gpus(tmp_path / "tools")


@pytest.fixture
def models(tmp_path: Path, gpus: Gpus) -> Callable[..., Store]:
    """A folder with models that hold so many MiB."""
    store = Store(tmp_path / "models")

    def models(**sizes: int) -> Store:
        for name, mebibytes in sizes.items():
            store.mar(name, source=MODEL.format(folder=str(gpus.folder), mebibytes=mebibytes))
        return store

    return models


def gpu_of(server: Server, model: str) -> int:
    """The GPU of a model's worker, as its handler sees it."""
    answer = requests.post(server.url(f"/predictions/{model}"), b"x", timeout=10 * ASK_SECONDS)
    assert answer.status_code == 200, answer.text
    return int(answer.text)


def states(server: Server) -> dict[str, str]:
    """How every model stands."""
    return {one["name"]: one["state"] for one in server.manage("GET", "/overview").json()["models"]}


def test_a_worker_goes_to_the_gpu_with_most_free_memory(start, gpus: Gpus, models) -> None:
    gpus.set("others-0", "1000")
    server = start("serve", "--model-store", models().path, env=gpus.env(), wait_for_workers=False)
    store = models(a=1500, b=300, c=100)
    for model, gpu in [("a", 1), ("b", 0), ("c", 0)]:
        server.register(store.path / f"{model}.mar")
        assert gpu_of(server, model) == gpu, model


def test_gpus_are_given_in_turn_where_that_is_switched_off(start, gpus: Gpus, models) -> None:
    gpus.set("others-1", "4000")
    flags = ["--model-store", models().path, "--gpu-memory", "off"]
    server = start("serve", *flags, env=gpus.env(), wait_for_workers=False)
    store = models(a=10, b=10)
    for model, gpu in [("a", 1), ("b", 0)]:
        server.register(store.path / f"{model}.mar")
        assert gpu_of(server, model) == gpu, model


def test_torchserve_gives_gpus_in_turn_unless_the_setting_is_there(start, gpus: Gpus, models, tmp_path: Path) -> None:
    gpus.set("others-1", "4000")
    store = models(a=10, b=10)
    for setting, expected in [("", [1, 0]), ("gpu_memory=0.9\n", [0, 0])]:
        config = tmp_path / f"config{len(setting)}.properties"
        config.write_text(f"{FREE_ADDRESSES}{setting}")
        flags = ["--foreground", "--ncs", "--disable-token-auth", "--enable-model-api", "--ts-config", config]
        server = start(
            "torchserve", "--start", "--model-store", store.path, *flags, wait_for_workers=False, env=gpus.env()
        )
        for model, gpu in zip("ab", expected, strict=True):
            server.register(store.path / f"{model}.mar")
            assert gpu_of(server, model) == gpu, (setting, model)


def test_an_idle_model_leaves_its_gpu_for_another_one(start, gpus: Gpus, models) -> None:
    store = models(a=2000, b=2000, c=2000, small=100)
    server = start("serve", store.path, "--load", "on_demand", "--startup-wait", "1200s", env=gpus.env())
    first = {model: gpu_of(server, model) for model in "ab"}
    assert set(first.values()) == {0, 1}
    assert gpu_of(server, "small") in (0, 1)
    where = gpu_of(server, "c")
    left = next(model for model, gpu in first.items() if gpu == where)
    until(lambda: states(server)[left] == "known", "what c holds more than was thought is free again")
    assert list(states(server).values()).count("known") == 1
    again = gpu_of(server, left)
    assert gpus.held(again) < 0.9 * 4096, "its size is known: an idle one has left before it began"
    assert gpu_of(server, "small") in (0, 1)


def test_a_model_that_no_gpu_has_room_for_is_rejected_with_the_sum(start, gpus: Gpus, models) -> None:
    gpus.set("others-0", "3000")
    gpus.set("others-1", "3200")
    store = models(big=1000, none=0)
    server = start("serve", store.path, "--load", "on_demand", "--startup-wait", "1200s", env=gpus.env())
    for _ in range(2):
        answer = requests.post(server.url("/predictions/big"), b"x", timeout=10 * ASK_SECONDS)
        assert answer.status_code == 507, answer.text
        sentence = r"it needs 1000 MiB of a GPU; on GPU 0, .* hold 2.9 GiB, and gpu_memory=3.6 GiB"
        assert re.search(sentence, answer.text), answer.text
    assert gpu_of(server, "none") == 0, "it uses no GPU and is not held up"
    gpus.set("others-0", "0")
    assert gpu_of(server, "big") == 0, "there is room now"


def test_a_gpu_where_every_worker_fails_gets_no_workers_for_a_while(start, gpus: Gpus, models) -> None:
    gpus.set("others-1", "1000")
    gpus.set("broken", "0")
    server = start("serve", "--model-store", models().path, env=gpus.env(), wait_for_workers=False)
    store = models(a=100, b=100, c=100)
    for model in "ab":
        server.register(store.path / f"{model}.mar", workers=0)
        server.manage("PUT", f"/models/{model}", min_worker=1)
        until(lambda model=model: server.predict(model).ok, "it has loaded")
        assert gpu_of(server, model) == 1, "after it had failed on GPU 0"
    server.logged("GPU 0 gets no workers for 60 s: 2 in a row, of 2 models, have failed there")
    server.register(store.path / "c.mar")
    assert gpu_of(server, "c") == 1


def test_the_workers_of_a_gpu_that_is_gone_are_placed_elsewhere(start, gpus: Gpus, models) -> None:
    gpus.set("others-1", "1000")
    server = start("serve", "--model-store", models().path, env=gpus.env(), wait_for_workers=False)
    store = models(a=100, b=100)
    for model in "ab":
        server.register(store.path / f"{model}.mar")
        assert gpu_of(server, model) == 0
    gpus.set("gone", "0")
    os.kill(server.describe("a")["workers"][0]["pid"], signal.SIGKILL)
    until(lambda: server.predict("a").text == "1", "a runs on the other GPU")
    server.logged("GPU 0 is gone: its workers are placed elsewhere")
    until(lambda: gpu_of(server, "b") == 1, "b is replaced")
    server.logged("of b is replaced: GPU 0 is gone")
