"""A job that is killed goes on where it was: after any kill, the same command ends with exactly the right rows."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.offline import JOB_SECONDS, Desk
from harness.wait import until

ROWS = 400


@pytest.fixture
def desk(binary: Path, tmp_path: Path) -> Desk:
    return Desk(binary, tmp_path)


def check(desk: Desk, output: str) -> None:
    """Every row once, in order, the unlucky one beside the others."""
    assert desk.lines(output) == [{"row": n, "output": 2 * n} for n in range(ROWS) if n != 13]
    assert [one["row"] for one in desk.lines(f"{output}.failed.jsonl")] == [13]
    assert not (desk.path / f"{output}.progress").exists()
    assert not (desk.path / f"{output}.part").exists()


@pytest.mark.heavy
def test_a_job_that_is_killed_again_and_again_ends_with_every_row_once(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS)])
    job = ["models.py:double", "in.jsonl", "--workers", "1"]
    done = 0
    for _ in range(3):
        done = desk.kill_at(done + 1, "out.jsonl", *job)
        assert not (desk.path / "out.jsonl").exists(), "an output has its name only when it is complete"
    assert 0 < done < ROWS
    said = desk.run(*job, "-o", "out.jsonl")
    assert f"resuming after {done} rows" in said
    check(desk, "out.jsonl")


def test_a_job_that_is_killed_before_its_first_row_begins_again(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS)])
    desk.kill_at(0, "out.jsonl", "models.py:double", "in.jsonl")
    desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl")
    check(desk, "out.jsonl")


def test_rows_after_the_last_journal_are_cut_off(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS)])
    desk.kill_at(1, "out.jsonl", "models.py:double", "in.jsonl")
    with (desk.path / "out.jsonl.part").open("a") as part:
        part.write('{"row":399,"output":0}\n{"row":')
    with (desk.path / "out.jsonl.failed.jsonl").open("a") as failed:
        failed.write("half a li")
    desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl")
    check(desk, "out.jsonl")


def test_a_table_goes_on_in_the_middle(desk: Desk) -> None:
    text = "number\r\n" + "".join(f'"{n}"\r\n' for n in range(ROWS))
    (desk.path / "in.csv").write_text(text)
    desk.kill_at(1, "out.jsonl", "models.py:double", "in.csv", "--workers", "1")
    desk.run("models.py:double", "in.csv", "-o", "out.jsonl")
    check(desk, "out.jsonl")


def test_a_table_that_is_written_has_one_header(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS)])
    desk.kill_at(1, "out.csv", "models.py:double", "in.jsonl", "--workers", "1")
    desk.run("models.py:double", "in.jsonl", "-o", "out.csv")
    expected = ["row,output", *(f"{n},{2 * n}" for n in range(ROWS) if n != 13)]
    assert (desk.path / "out.csv").read_text().splitlines() == expected


def test_a_folder_goes_on_in_the_middle(desk: Desk) -> None:
    images = desk.path / "images"
    images.mkdir()
    for n in range(ROWS):
        (images / f"{n:03}.png").write_bytes(bytes(n))
    desk.kill_at(1, "out.jsonl", "models.py:look", images, "--workers", "1")
    desk.run("models.py:look", images, "-o", "out.jsonl")
    assert [(one["file"], one["output"]["size"]) for one in desk.lines("out.jsonl")] == [
        (f"{n:03}.png", n) for n in range(ROWS)
    ]


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
def test_parquet_goes_on_in_the_middle(desk: Desk) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(
        pyarrow.table({"number": list(range(ROWS))}), desk.path / "in.parquet", row_group_size=33
    )
    job = ["models.py:double", "in.parquet", "--python", sys.executable]
    desk.kill_at(1, "out.parquet", *job, "--workers", "1")
    desk.run(*job, "-o", "out.parquet")
    written = pyarrow.parquet.read_table(desk.path / "out.parquet").to_pylist()
    assert written == [{"row": n, "output": 2 * n} for n in range(ROWS) if n != 13]


def test_an_interrupted_job_remembers_every_row_it_wrote(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS)])
    job = desk.begin("models.py:double", "in.jsonl", "-o", "out.jsonl", "--workers", "1")
    until(lambda: desk.journal("out.jsonl") > 0, "the job is under way", JOB_SECONDS)
    job.send_signal(signal.SIGINT)
    desk.gate.touch()
    assert job.wait(JOB_SECONDS) == 130
    part = (desk.path / "out.jsonl.part").read_text()
    failed = (desk.path / "out.jsonl.failed.jsonl").read_text()
    assert part.count("\n") + failed.count("\n") == desk.journal("out.jsonl")
    desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl")
    check(desk, "out.jsonl")


def test_another_job_does_not_go_on_with_the_rows_of_this_one(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS)])
    desk.kill_at(1, "out.jsonl", "models.py:double", "in.jsonl", "--workers", "1")
    said = desk.run("models.py:slow", "in.jsonl", "-o", "out.jsonl", code=1)
    assert "the model was" in said
    assert "--overwrite" in said
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS + 1)])
    assert "the input has changed" in desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", code=1)


def test_two_jobs_do_not_write_one_output(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(ROWS)])
    job = desk.begin("models.py:double", "in.jsonl", "-o", "out.jsonl", "--workers", "1")
    until(lambda: (desk.path / "out.jsonl.progress").exists(), "the job is under way", JOB_SECONDS)
    assert "another job" in desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", code=1)
    job.kill()
    job.wait()
