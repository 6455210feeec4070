"""`jitney.map_batches`: a model as one step of a Ray Dataset, on a cluster of two nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.offline import JOB_SECONDS, Desk
from harness.ray_nodes import ray_nodes

ROOT = Path(__file__).parents[1]
SECONDS = 4 * JOB_SECONDS

DATASET = """
import sys

import jitney
import ray


@jitney.batch(max_batch_size=64)
def double(number: list[int]) -> list[object]:
    return [jitney.Error("unlucky", 422) if one == 13 else 2 * one for one in number]


ray.init(address=sys.argv[1], log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": sys.argv[2]}})
numbers = ray.data.from_items([{"number": n, "key": f"k{n}"} for n in range(5000)], override_num_blocks=4)
options = {"columns": ["number"], "workers": 1, "program": sys.argv[3]}
for model in (double, sys.argv[4]):
    rows = sorted(jitney.map_batches(numbers, model, **options).take_all(), key=lambda row: row["number"])
    for n, row in enumerate(rows):
        answer = {"output": None, "error": "unlucky"} if n == 13 else {"output": 2 * n, "error": None}
        assert row == {"number": n, "key": f"k{n}", **answer}, row
    assert len(rows) == 5000
try:
    jitney.map_batches([1], double)
except jitney.InferError as error:
    assert "no Ray Dataset" in str(error)
else:
    raise AssertionError("a list was taken")
"""


@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray[data]")
@pytest.mark.heavy
def test_a_dataset_is_mapped_by_one_call(binary: Path, tmp_path: Path) -> None:
    desk = Desk(binary, tmp_path)
    (desk.path / "mapped.py").write_text(DATASET)
    packages = str(ROOT / "python")
    with ray_nodes(2) as nodes:
        command = [
            sys.executable,
            "mapped.py",
            nodes.address,
            packages,
            str(desk.binary),
            str(desk.path / "models.py:double"),
        ]
        env = {**os.environ, "PYTHONPATH": packages}
        ran = subprocess.run(command, cwd=desk.path, env=env, capture_output=True, text=True, timeout=SECONDS)
        assert ran.returncode == 0, ran.stderr
