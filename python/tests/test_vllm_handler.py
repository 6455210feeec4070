"""The stock handler for vLLM, as far as it needs no server; tests/test_llm_archives.py has the rest."""

from __future__ import annotations

import os
import re
from pathlib import Path

from jitney.definition.definition import define
from jitney.worker.gpus import select_gpus
from ts.torch_handler.vllm_handler import PATHS, VLLMHandler

STORE = Path(__file__).parents[2] / "crates/store/src/stock_definition.rs"


def test_its_endpoints_are_those_that_the_server_knows():
    listed = re.search(r"const VLLM_PATHS[^=]*= \[(.*?)\];", STORE.read_text(), re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r'"([^"]+)"', listed[1])) == PATHS
    endpoints = define(VLLMHandler).endpoints
    assert tuple(one.name for one in endpoints) == PATHS
    assert all(one.raw and one.is_async and one.concurrency > 1 for one in endpoints)


def test_its_engine_sees_the_gpu_of_its_worker_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    spec = {"gpu_id": 2, "model_yaml_config": {"jitney": {"own_gpus": True}}}
    assert select_gpus(spec)["gpu_id"] == 0

    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6"


def test_a_worker_on_a_part_of_a_gpu_sees_that_part_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")
    assert select_gpus({"gpu_id": 1})["gpu_id"] == 0
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-2"
