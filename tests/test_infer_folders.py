"""`jitney infer --ray` from folders of Parquet files to others: each row is there once, whoever dies.

The cluster is of nodes that share this machine. The bucket is moto's, which CLOUDS_MOTO names (see `make test-ray`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness.offline import JOB_SECONDS, Desk
from harness.ray_nodes import ray_nodes
from harness.wait import until
from test_clouds import keeper

FILES, ROWS = 6, 3000
"""Three parts each: 1,024 rows, as many, and the rest."""
HELD_FROM = 2 * ROWS
SECONDS = 4 * JOB_SECONDS

MODEL = """
import os
import time

import jitney


@jitney.batch(max_batch_size=256)
def double(number: list[int]) -> list[object]:
    while max(number) >= {held} and not os.path.exists({gate!r}):
        open(os.path.join({path!r}, f"held-{{os.getpid()}}"), "w").close()
        time.sleep(0.01)
    return [jitney.Error("unlucky", 422) if one == 13 else 2 * one for one in number]
"""

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray[data]")


@pytest.fixture
def desk(binary: Path, tmp_path: Path) -> Desk:
    return Desk(binary, tmp_path)


def write_model(desk: Desk) -> None:
    text = MODEL.format(held=HELD_FROM, gate=str(desk.gate), path=str(desk.path))
    (desk.path / "held.py").write_text(text)


def write_rows(filesystem: Any, folder: str) -> None:
    """Rows with a key each, in partitions by year."""
    import pyarrow.parquet

    for number in range(FILES):
        keys = range(number * ROWS, (number + 1) * ROWS)
        table = pyarrow.table({"number": list(keys), "key": [f"k{key}" for key in keys]})
        year = f"{folder}/year={2020 + number % 3}"
        if filesystem.type_name == "local":
            filesystem.create_dir(year)
        with filesystem.open_output_stream(f"{year}/rows-{number}.parquet") as file:
            pyarrow.parquet.write_table(table, file, row_group_size=700)


def check(filesystem: Any, folder: str) -> None:
    """Every key once, in the partition that it was in, with its own output."""
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(folder, filesystem=filesystem, partitioning="hive").to_table()
    rows = sorted(table.to_pylist(), key=lambda row: row["number"])
    assert [row["number"] for row in rows] == list(range(FILES * ROWS))
    for number, row in enumerate(rows):
        expected = (None, "unlucky") if number == 13 else (2 * number, None)
        assert (row["output"], row["error"]) == expected
        file, year = number // ROWS, 2020 + number // ROWS % 3
        assert (row["key"], row["year"], row["row"]) == (f"k{number}", year, number % ROWS)
        assert row["file"] == f"year={year}/rows-{file}.parquet"


class Run:
    """A job with its process group: the command and the process that leads the job."""

    def __init__(self, desk: Desk, *arguments: str, **env: str) -> None:
        self.said = desk.path / "said.txt"
        command = [str(desk.binary), "infer", "held.py:double", *arguments, "--python", sys.executable]
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                command, cwd=desk.path, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    def until(self, condition: Any, what: str) -> None:
        until(lambda: self.process.poll() is not None or condition(), what, SECONDS)
        assert self.process.poll() is None, self.said.read_text()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> str:
        assert self.process.wait(SECONDS) == 0, self.said.read_text()
        return self.said.read_text()


def held(desk: Desk) -> set[Path]:
    """The workers that wait for the gate, or did."""
    return set(desk.path.glob("held-*"))


@needs_ray
@pytest.mark.heavy
def test_each_row_is_there_once_after_a_killed_driver_and_a_killed_node(desk: Desk) -> None:
    from pyarrow import fs

    write_model(desk)
    write_rows(fs.LocalFileSystem(), str(desk.path / "rows"))
    output = desk.path / "answers"
    with ray_nodes(3) as nodes:
        job = ["rows", "-o", "answers", "--columns", "number", "--with-input", f"--ray={nodes.address}"]
        first = Run(desk, *job)
        first.until(lambda: list(output.glob("_jitney/*/0*")), "a part is done")
        first.kill()
        assert not (output / "_SUCCESS").exists()
        before = held(desk)
        second = Run(desk, *job)
        second.until(lambda: len(held(desk) - before) == 3, "all nodes are at work")
        nodes.remove_node(sorted(nodes.worker_nodes, key=id)[0], allow_graceful=False)
        desk.gate.touch()
        assert "resuming after" in second.end()
    check(fs.LocalFileSystem(), str(output))
    assert not (output / "_jitney").exists()
    assert "already complete" in desk.run("held.py:double", *job, "--python", sys.executable)


@needs_ray
@pytest.mark.heavy
def test_a_bucket_is_read_and_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-this-node")
    write_model(desk)
    with keeper("CLOUDS_MOTO", "-p", "{port}") as base, ray_nodes(2) as nodes:
        bucket = fs.S3FileSystem(endpoint_override=base, region="us-east-1", allow_bucket_creation=True)
        bucket.create_dir("data")
        write_rows(bucket, "data/rows")
        job = ["s3://data/rows", "-o", "s3://data/answers", "--columns", "number", "--with-input"]
        env = {"AWS_ENDPOINT_URL": base, "AWS_REGION": "us-east-1"}
        first = Run(desk, *job, f"--ray={nodes.address}", **env)
        notes = fs.FileSelector("data/answers/_jitney", allow_not_found=True, recursive=True)
        first.until(lambda: sum(one.is_file for one in bucket.get_file_info(notes)) > 1, "a part is done")
        first.kill()
        desk.gate.touch()
        assert "resuming after" in Run(desk, *job, f"--ray={nodes.address}", **env).end()
        check(bucket, "data/answers")
        assert not [one for one in bucket.get_file_info(notes) if one.is_file]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["rows", "-o", "answers"], "need --ray"),
        (["s3://data/rows", "-o", "s3://data/answers"], "need --ray"),
        (["rows", "-o", "answers.parquet", "--ray"], "must be a folder"),
        (["s3://data/rows", "-o", "-", "--ray"], "must be a folder"),
        (["s3://data/rows", "-o", "answers", "--ray", "--format", "csv"], "Parquet only"),
        (["nothing", "-o", "s3://data/answers", "--ray"], "no such file or folder"),
        (["in.jsonl", "-o", "out.jsonl", "--columns", "number"], "--columns is for folders"),
    ],
)
def test_what_is_wrong_with_a_job_over_folders_is_said(desk: Desk, arguments: list[str], what: str) -> None:
    (desk.path / "rows/year=2024").mkdir(parents=True)
    (desk.path / "rows/year=2024/a.parquet").write_text("")
    desk.write("in.jsonl", [{"number": 1}])
    assert what in desk.run("models.py:double", *arguments, code=64)


@needs_ray
@pytest.mark.heavy
def test_a_model_that_cannot_be_loaded_ends_the_job_with_the_reason(desk: Desk) -> None:
    from pyarrow import fs

    write_rows(fs.LocalFileSystem(), str(desk.path / "rows"))
    (desk.path / "held.py").write_text("raise RuntimeError('no weights here')\n")
    job = ["held.py:double", "rows", "--columns", "number", "--python", sys.executable]
    with ray_nodes(1) as nodes:
        said = desk.run(*job, "-o", "answers", f"--ray={nodes.address}", code=1)
        assert "no weights here" in said
    said = desk.run(*job[:2], "-o", "answers", "--ray", "--columns", "nothing", "--python", sys.executable, code=1)
    assert "has no column 'nothing'; its columns are 'number', 'key', 'year'" in said
    said = desk.run(*job, "-o", "rows/answers", "--ray", code=1)
    assert "must not lie in each other" in said
