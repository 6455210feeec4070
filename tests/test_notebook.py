"""The notebook of examples/, executed cell by cell in a real kernel, and what cells do that a script does not."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parent.parent
CELL_SECONDS = 120


@pytest.fixture
def environment(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNEY_BIN", str(binary))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))


def execute(notebook: Any, directory: Path) -> list[Any]:
    """Runs all cells; those with code."""
    from nbclient import NotebookClient

    resources = {"metadata": {"path": str(directory)}}
    NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> str:
    """What a cell's last line gave."""
    return "".join(one["data"]["text/plain"] for one in cell.outputs if one.output_type == "execute_result")


def printed(cell: Any) -> str:
    return "".join(one["text"] for one in cell.outputs if one.output_type == "stream")


def cells_of(*sources: str) -> Any:
    import nbformat

    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


@pytest.mark.usefixtures("environment")
def test_the_notebook_of_the_examples_runs(tmp_path: Path) -> None:
    import nbformat

    cells = execute(nbformat.read(ROOT / "examples/notebook.ipynb", as_version=4), tmp_path)
    assert len(cells) == 12
    define, run, call, gather, stream, frame, parquet, _, plot, completion, stop = cells[1:]
    assert shown(define) == "" and "<jitney.RunningModel vowels at http://127.0.0.1:" in shown(run)
    assert shown(call) == "(4, 2)"
    assert shown(gather) == "[1, 2, 2]"
    assert shown(stream) == "['a', 'b', 'c', 'd', 'e']"
    assert "output" in shown(frame) and "100% |" in printed(frame) and "1,000 of 1,000 rows" in printed(frame)
    assert shown(parquet).startswith("(1000, ")
    assert any("image/png" in output.get("data", {}) for output in plot.outputs)
    names = ["call", "close", "configure", "management_url", "options", "remote", "stream", "submit", "url"]
    assert ast.literal_eval(shown(completion)) == names
    assert stop.outputs == []
    assert [printed(cell) for cell in cells if cell not in (frame,)] == [""] * 11  # No log line in any cell.


ANSWER = """
import jitney

def answer(x: int) -> int:
    print("called")
    return x + {step}

model = jitney.run(answer{more})
"""
BAD = """
class Bad:
    def setup(self):
        raise ValueError("no weights")

    def __call__(self): ...

try:
    jitney.run(Bad)
except RuntimeError as error:
    print(error)
"""
INTERRUPT = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.killpg(0, signal.SIGINT)  # As Jupyter interrupts a cell.
model(1)
"""


@pytest.mark.usefixtures("environment")
def test_cells_can_be_wrong_be_run_again_and_give_calls_up(tmp_path: Path) -> None:
    cells = execute(
        cells_of(
            ANSWER.format(step=1, more=""),
            "first = model\nmodel(1)",
            ANSWER.format(step=2, more=", prints=False"),
            "model(1)",
            "try:\n    first(1)\nexcept RuntimeError as error:\n    print(error)",
            "for text in ('a', 'b'):\n    model.remote(x=text)\nimport gc\ngc.collect()\nmodel(1)",
            INTERRUPT,
            BAD,
            "model.close()",
        ),
        tmp_path,
    )
    _, once, _, twice, replaced, given_up, interrupted, bad, _ = cells
    assert shown(once) == "2" and "| called" in printed(once)
    assert (shown(twice), printed(twice)) == ("3", "")
    assert "the session is closed" in printed(replaced)
    assert (shown(given_up), printed(given_up)) == ("3", "")
    assert shown(interrupted) == "3"
    assert "Bad did not load" in printed(bad) and "ValueError: no weights" in printed(bad)
