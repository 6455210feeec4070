"""`jitney infer --ray` on a cluster of two nodes that share this machine: the same rows, also after a kill."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.offline import Desk

ROWS = 2000
DATA = Path(__file__).parent / "data"

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
    held = text.replace('os.environ.get("HOLD")', repr(str(desk.gate)))  # Actors do not see our variables.
    models.write_text(held)
    done = desk.kill_at(1, "out.jsonl", *job)
    assert 0 < done < ROWS
    models.write_text(text)
    said = desk.run(*job, "-o", "out.jsonl")
    assert f"resuming after {done} rows" in said
    assert desk.lines("out.jsonl") == [{"row": n, "output": 2 * n} for n in range(ROWS) if n != 13]
    assert [one["row"] for one in desk.lines("out.jsonl.failed.jsonl")] == [13]


@needs_ray
@pytest.mark.heavy
def test_tables_parquet_and_images_are_answered_as_on_one_machine(desk: Desk, cluster: str) -> None:
    import pyarrow
    import pyarrow.parquet

    (desk.path / "in.csv").write_text("number\n" + "".join(f'"{n}"\n' for n in range(ROWS)) + "1,2\n7\n")
    numbers = pyarrow.table({"number": list(range(ROWS))})
    pyarrow.parquet.write_table(numbers, desk.path / "in.parquet", row_group_size=300)
    images = desk.path / "images"
    shutil.copytree(DATA, images)
    for model, source, output in [
        ("double", "in.csv", "a.csv"),
        ("double", "in.parquet", "b.jsonl"),
        ("look", "images", "c.jsonl"),
    ]:
        job = [f"models.py:{model}", source, "--python", sys.executable, "--workers", "2", "--with-input"]
        desk.run(*job, "-o", f"one-{output}")
        desk.run(*job, "-o", f"many-{output}", f"--ray={cluster}")
        assert read(desk, f"many-{output}") == read(desk, f"one-{output}")
    assert "2 cells" in read(desk, "many-a.csv.failed.jsonl")


def read(desk: Desk, name: str) -> str:
    return (desk.path / name).read_text()


def test_what_comes_on_stdin_is_not_for_a_cluster(desk: Desk) -> None:
    assert "all nodes" in desk.run("models.py:double", "-", "-o", "-", "--ray", code=64)
    assert "JSON lines" in desk.run("models.py:double", "-", "-o", "-", "--format", "csv", code=64)


@pytest.mark.skipif(find_spec("ray") is not None, reason="needs a Python without ray")
def test_a_python_without_ray_says_what_to_install(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": 1}])
    said = desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", "--ray", "--python", sys.executable, code=1)
    assert "ray[data]" in said
