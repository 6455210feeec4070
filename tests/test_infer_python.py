"""`jitney.infer` as an iterator, driven from a script of the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.offline import JOB_SECONDS, Desk

PYTHON = Path(__file__).parent.parent / "python"


@pytest.fixture
def desk(binary: Path, tmp_path: Path) -> Desk:
    return Desk(binary, tmp_path)


def script(desk: Desk, text: str, code: int = 0) -> str:
    """Runs a script beside the models; returns what it printed."""
    (desk.path / "script.py").write_text(f"import jitney\n{text}")
    environment = {**os.environ, "PYTHONPATH": str(PYTHON), "JITNEY_BIN": str(desk.binary)}
    command = [sys.executable, "script.py"]
    ran = subprocess.run(command, cwd=desk.path, env=environment, capture_output=True, text=True, timeout=JOB_SECONDS)
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


def test_outputs_come_in_order_and_failures_in_their_place(desk: Desk) -> None:
    told = script(
        desk,
        """
rows = ({"number": n} for n in range(11, 16))
for output in jitney.infer("models.py:double", rows, workers=1):
    print(repr(output))
""",
    )
    assert told.splitlines() == ["22", "24", "Error('unlucky')", "28", "30"]


def test_a_job_of_which_every_row_failed_tells_each(desk: Desk) -> None:
    told = script(desk, 'print(list(jitney.infer("models.py:double", [{"number": 13}] * 2, workers=1)))')
    assert told.strip() == "[Error('unlucky'), Error('unlucky')]"


def test_a_row_of_a_frame_has_one_output(desk: Desk) -> None:
    told = script(
        desk,
        """
import pandas as pd

@jitney.batch(max_batch_size=4)
def total(frame: pd.DataFrame) -> list:
    return (frame["a"] + frame["b"]).tolist()

if __name__ == "__main__":
    print(list(jitney.infer(total, pd.DataFrame({"a": [1, 2], "b": [3, 4]}), workers=1)))
""",
    )
    assert told.strip() == "[4, 6]"


def test_a_function_of_the_script_itself_is_run(desk: Desk) -> None:
    told = script(
        desk,
        """
@jitney.batch(max_batch_size=4)
def shout(text: list[str]) -> list[str]:
    return [one.upper() for one in text]

if __name__ == "__main__":
    print(list(jitney.infer(shout, ["a", "b"], workers=1)))
""",
    )
    assert told.strip() == "['A', 'B']"


def test_a_file_is_read_and_whoever_stops_ends_the_job(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(100_000)])
    told = script(
        desk,
        """
import models
outputs = jitney.infer(models.double, "in.jsonl", workers=1)
print(next(outputs), next(outputs))
outputs.close()
""",
    )
    assert told.strip() == "0 2"


def test_an_answer_does_not_wait_for_the_next_row(desk: Desk) -> None:
    told = script(
        desk,
        """
import queue
asked = queue.Queue()
outputs = jitney.infer("models.py:double", iter(asked.get, None), workers=1)
for number in (1, 2, 3):
    asked.put({"number": number})
    print(next(outputs))
asked.put(None)
print(list(outputs))
""",
    )
    assert told.split() == ["2", "4", "6", "[]"]


def test_what_ends_the_job_is_raised(desk: Desk) -> None:
    told = script(
        desk,
        """
def rows():
    yield {"number": 1}
    raise LookupError("the rows are gone")

for model, given in (("models.py:nothing", []), ("models.py:double", rows())):
    try:
        list(jitney.infer(model, given, workers=1))
    except (jitney.InferError, LookupError) as error:
        print(type(error).__name__, error)
""",
    )
    assert "InferError" in told
    assert "nothing" in told
    assert "LookupError the rows are gone" in told
