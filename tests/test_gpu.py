"""GPUs as workers and operators see them. The machine needs none: `nvidia-smi` is a script here."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

SMI = """#!/bin/sh
case "$1" in
-L) printf 'GPU 0: NVIDIA H200 (UUID: GPU-0)\\nGPU 1: NVIDIA H200 (UUID: GPU-1)\\n' ;;
*) printf '0, 37, 12, 1024, 4096\\n1, [N/A], [N/A], 5, [N/A]\\n' ;;
esac
"""

DEVICE = """
def handle(data, context):
    return [{"gpu": context.system_properties["gpu_id"]} for _ in data or []]
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """The tools of a machine with two GPUs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    return tools


def with_tools(tools: Path) -> dict[str, str]:
    """The environment of a server that finds the tools."""
    return {"PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture
def torchserve(start, tmp_path: Path, store: Store, tools: Path):
    """A server on a machine with two GPUs."""

    def torchserve(text: str = "", **env: str) -> Server:
        config = tmp_path / "config.properties"
        config.write_text(f"{FREE_ADDRESSES}metric_time_interval=1\n{text}")
        flags = ["--foreground", "--ncs", "--disable-token-auth", "--enable-model-api"]
        arguments = ["torchserve", "--start", *flags, "--model-store", store.path, "--ts-config", config]
        return start(*arguments, wait_for_workers=False, env={**with_tools(tools), **env})

    return torchserve


def gpus(server: Server, model: str) -> set[int | None]:
    """The GPUs of a model's workers, as their handlers see them."""
    with ThreadPoolExecutor(8) as clients:
        answers = clients.map(lambda _: server.predict(model).text, range(100))
        return {json.loads(answer)["gpu"] for answer in answers}


def test_workers_take_turns_over_the_gpus(torchserve, store: Store) -> None:
    server = torchserve()
    server.logged("Number of GPUs: 2")
    server.register(store.mar("both", source=DEVICE), workers=2)
    assert gpus(server, "both") == {0, 1}
    described = server.describe("both")
    assert described["deviceType"] == "gpu" and all(worker["gpu"] for worker in described["workers"])
    server.register(store.mar("second", source=DEVICE, config="deviceIds: [1]\n"))
    assert gpus(server, "second") == {1}
    assert server.describe("second")["deviceIds"] == [1]
    server.register(store.mar("none", source=DEVICE, config="deviceType: cpu\n"))
    assert gpus(server, "none") == {None}
    assert server.describe("none")["deviceType"] == "cpu"


def test_fewer_gpus_are_used_on_request(torchserve, store: Store) -> None:
    server = torchserve("number_of_gpu=1\n")
    server.register(store.mar("one", source=DEVICE), workers=2)
    assert gpus(server, "one") == {0}


def test_gpus_are_measured(torchserve, store: Store) -> None:
    server = torchserve("metrics_mode=prometheus\n")

    def page() -> str:
        return requests.get(server.url("/metrics", "metrics"), timeout=120).text

    until(lambda: "GPUUtilization{" in page(), "the GPUs were looked at")
    lines = [line for line in page().splitlines() if line.startswith("GPU")]
    assert [line.rpartition(" ")[2] for line in lines] == ["25.0", "1024.0", "37.0"]
    assert all('Level="Host",DeviceId="0",' in line for line in lines)
    server.register(store.mar("both", source=DEVICE), workers=2)
    usage = {worker["gpuUsage"] for worker in server.describe("both")["workers"]}
    words = "utilization.gpu [%]::37 % utilization.memory [%]::12 % memory.used [MiB]::1024 MiB"
    assert f"gpuId::0 {words}" in usage


DEFINED = """
import jitney


@jitney.batch(workers=2, device_ids=[1, 0], overlap=2, sizes=[1, 4], warm_up=[{"x": 1}])
def where(x: list[int]) -> list[str]:
    return [jitney.device()] * len(x)


@jitney.batch(device="cpu", max_batch_size=64, cost="len", lengths=[8, 16])
def nowhere(x: list[str]) -> list[str]:
    return [jitney.device()] * len(x)
"""


def test_workers_of_definitions_get_gpus_and_run_at_their_sizes(start, tools: Path, tmp_path: Path) -> None:
    (tmp_path / "places.py").write_text(DEFINED)
    server: Server = start("serve", "places:where", "places:nowhere", cwd=tmp_path, env=with_tools(tools))
    with ThreadPoolExecutor(8) as clients:
        answers = clients.map(lambda _: requests.get(server.url("/where?x=1"), timeout=120).text, range(100))
        assert set(answers) == {"cuda:0", "cuda:1"}
    assert requests.get(server.url("/nowhere?x=a"), timeout=120).text == "cpu"
    where, nowhere = server.describe("where"), server.describe("nowhere")
    assert (where["deviceIds"], where["sizes"], where["batchSize"]) == ([1, 0], [1, 4], 4)
    assert (nowhere["deviceType"], nowhere["lengths"]) == ("cpu", [8, 16])
    batching = requests.get(server.url("/models/where/batching", "management"), timeout=120).json()
    assert [point["size"] for point in batching["curve"]][:2] == [1, 4], "what warming up measured is learned"
