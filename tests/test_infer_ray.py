"""`jitney infer --ray` on a cluster of two nodes that share this machine: the same rows, also after a kill."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.offline import Desk

ROWS = 2000

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray[data]")


@pytest.fixture
def desk(binary: Path, tmp_path: Path) -> Desk:
    return Desk(binary, tmp_path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of two nodes with a processor each."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes.address
    nodes.shutdown()


@needs_ray
@pytest.mark.heavy
def test_a_cluster_answers_every_row_once_and_in_order_also_after_a_kill(desk: Desk, cluster: str) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS)])
    job = ["models.py:double", "in.jsonl", f"--ray={cluster}", "--workers", "2", "--python", sys.executable]
    models, text = desk.path / "models.py", (desk.path / "models.py").read_text()
    models.write_text(text.replace('"PAUSE", "0"', '"PAUSE", "0.05"'))  # Actors do not see our variables.
    done = desk.kill_at(1, "out.jsonl", *job)
    assert 0 < done < ROWS
    models.write_text(text)
    said = desk.run(*job, "-o", "out.jsonl")
    assert f"going on after {done} rows" in said
    assert desk.lines("out.jsonl") == [{"row": n, "output": 2 * n} for n in range(ROWS) if n != 13]
    assert [one["row"] for one in desk.lines("out.jsonl.failed.jsonl")] == [13]


def test_only_lines_go_to_a_cluster(desk: Desk) -> None:
    (desk.path / "in.csv").write_text("number\n1\n")
    assert "JSON lines" in desk.run("models.py:double", "in.csv", "-o", "out.jsonl", "--ray", code=64)
    assert desk.names() == ["in.csv"]


@pytest.mark.skipif(find_spec("ray") is not None, reason="needs a Python without ray")
def test_a_python_without_ray_says_what_to_install(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": 1}])
    said = desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", "--ray", "--python", sys.executable, code=1)
    assert "ray[data]" in said
