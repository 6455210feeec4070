"""What a worker's environment says of its GPUs."""

from __future__ import annotations

import os
import sys
import types

import pytest

from jitney.gpu.device import _Assigned, device
from jitney.worker.gpus import COMPILERS_VARIABLE, MPS_VARIABLE, QUEUES_VARIABLE, VARIABLE, select_gpus


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in (VARIABLE, QUEUES_VARIABLE, MPS_VARIABLE, COMPILERS_VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def queues():
    return os.environ.get(QUEUES_VARIABLE)


def test_a_worker_with_a_gpu_has_all_the_queues_there_are():
    assert select_gpus({"gpu_id": 0}) == {"gpu_id": 0}
    assert queues() == "32"


def test_the_operators_number_of_queues_stays(monkeypatch):
    monkeypatch.setenv(QUEUES_VARIABLE, "1")
    select_gpus({"gpu_id": 3})
    assert queues() == "1"


def test_where_processes_share_the_queues_they_are_left_alone(monkeypatch):
    monkeypatch.setenv(MPS_VARIABLE, "/tmp/mps")
    select_gpus({"gpu_id": 0})
    assert queues() is None


def test_a_worker_without_a_gpu_says_nothing():
    assert select_gpus({"gpu_id": None}) == {"gpu_id": None}
    assert queues() is None


def test_a_worker_of_several_gpus_sees_those_and_counts_from_0(monkeypatch):
    monkeypatch.setenv(VARIABLE, "4,5,6")
    assert select_gpus({"gpu_ids": [1, 2], "gpu_id": 1}) == {"gpu_ids": [1, 2], "gpu_id": 0}
    assert (os.environ[VARIABLE], queues()) == ("5,6", "32")


COMPILED = {"pt2": {"compile": {"enable": True}}}


@pytest.mark.parametrize(
    ("spec", "set_before", "threads"),
    [
        ({"gpu_id": 0, "model_yaml_config": COMPILED}, None, "1"),
        ({"gpu_ids": [1, 2], "gpu_id": 1, "model_yaml_config": COMPILED}, None, "1"),
        ({"gpu_id": 0, "model_yaml_config": COMPILED}, "4", "4"),
        ({"gpu_id": 0}, None, None),
        ({"gpu_id": None, "model_yaml_config": COMPILED}, None, None),
    ],
)
def test_torch_starts_no_compilers_beside_a_compiled_model_on_a_gpu(monkeypatch, spec, set_before, threads):
    if set_before is not None:
        monkeypatch.setenv(COMPILERS_VARIABLE, set_before)
    select_gpus(spec)
    assert os.environ.get(COMPILERS_VARIABLE) == threads


@pytest.mark.parametrize(
    ("cuda", "metal", "found"), [(False, True, "mps"), (True, True, "cuda:0"), (False, False, "cpu")]
)
def test_a_gpu_of_apples_is_mps(monkeypatch, cuda, metal, found):
    fake = types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_available=lambda: cuda),
        backends=types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: metal)),
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(_Assigned, "by_server", False)
    assert device() == found and device().is_gpu == (found != "cpu")
