"""`jitney infer` over every format, to its end: answers in order, failed rows beside them, nothing left over."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.archives import Store
from harness.offline import Desk
from harness.server import Server

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"

needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")


@pytest.fixture
def desk(binary: Path, tmp_path: Path) -> Desk:
    return Desk(binary, tmp_path)


def test_lines_are_answered_in_order_and_in_full_batches(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(100, 150)])
    said = desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", "--workers", "2", "--log-level", "info")
    assert desk.lines("out.jsonl") == [{"row": n, "output": 2 * (100 + n)} for n in range(50)]
    assert "50 rows" in said
    sizes = [int(size) for size in re.findall(r"a batch of (\d+)", said)]
    assert sum(sizes) == 50
    assert max(sizes) == 8
    assert desk.names() == ["in.jsonl", "out.jsonl"]


def test_failed_rows_go_to_a_side_file_with_their_error(desk: Desk) -> None:
    rows = ['{"number": 12}', '{"number": 13}', "nonsense", '{"number": "x"}', "", '{"number": 14}']
    (desk.path / "in.jsonl").write_text("\n".join(rows))
    said = desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", "--with-input")
    assert desk.lines("out.jsonl") == [
        {"row": 0, "input": {"number": 12}, "output": 24},
        {"row": 4, "input": {"number": 14}, "output": 28},
    ]
    unlucky, nonsense, text = desk.lines("out.jsonl.failed.jsonl")
    assert unlucky == {"row": 1, "input": {"number": 13}, "error": "unlucky", "status": 422}
    assert (nonsense["row"], nonsense["input"], nonsense["status"]) == (2, "nonsense", 400)
    assert "not JSON" in nonsense["error"]
    assert text["row"] == 3
    assert "'number'" in text["error"]
    assert "3 failed" in said


def test_too_many_failures_stop_the_job(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": 13}] * 20)
    said = desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", "--max-failed", "3", code=1)
    assert "unlucky" in said
    assert "--max-failed" in said


def test_a_job_of_which_no_row_was_answered_fails(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": 13}] * 2)
    said = desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", code=1)
    assert said.rstrip().endswith("every row failed"), said
    assert len(desk.lines("out.jsonl.failed.jsonl")) == 2


TABLES = """
import jitney
import pandas as pd


@jitney.batch(max_batch_size=8)
def total(frame: pd.DataFrame) -> list:
    return (frame["a"] + frame["b"]).tolist()
"""


def test_cells_of_a_table_are_numbers_for_a_function_that_takes_tables(desk: Desk) -> None:
    (desk.path / "tables.py").write_text(TABLES)
    (desk.path / "in.csv").write_text("a,b,name\n1,2.5,x\n3,4,y\n")
    desk.run("tables.py:total", "in.csv", "-o", "out.jsonl")
    assert [line["output"] for line in desk.lines("out.jsonl")] == [[3.5], [7]]


def test_a_table_becomes_a_table(desk: Desk) -> None:
    (desk.path / "in.csv").write_text('number\n1\n"2"\n13\n4,5\n3\n')
    desk.run("models.py:double", "in.csv", "-o", "out.csv", "--with-input")
    with (desk.path / "out.csv").open() as file:
        assert list(csv.reader(file)) == [
            ["row", "number", "output"],
            ["0", "1", "2"],
            ["1", "2", "4"],
            ["4", "3", "6"],
        ]
    failed = desk.lines("out.csv.failed.jsonl")
    assert [one["row"] for one in failed] == [2, 3]
    assert "2 cells" in failed[1]["error"]


def test_images_are_rows_by_their_names(desk: Desk) -> None:
    images = ["cat.jpg", "coffee.jpg", "face.jpg"]
    desk.run("models.py:look", DATA, "-o", "out.jsonl")
    expected = [
        {"row": row, "file": name, "output": {"size": (DATA / name).stat().st_size, "head": head(name)}}
        for row, name in enumerate(images)
    ]
    assert desk.lines("out.jsonl") == expected
    desk.run("models.py:look", DATA, "-o", "out.csv")
    with (desk.path / "out.csv").open() as file:
        assert [record["file"] for record in csv.DictReader(file)] == images


def head(name: str) -> str:
    return (DATA / name).read_bytes()[:4].hex()


def test_names_of_files_on_stdin_are_rows_too(desk: Desk) -> None:
    asked = f"{DATA / 'cat.jpg'}\nnone.jpg\n"
    told = desk.run("models.py:look", "-", "-o", "-", "--format", "images", input=asked)
    cat, none = (json.loads(line) for line in told.splitlines())
    assert cat["output"]["head"] == head("cat.jpg")
    assert "cannot read the file" in none["error"]


@needs_pyarrow
def test_parquet_is_read_and_written(desk: Desk) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"number": list(range(20))})
    pyarrow.parquet.write_table(table, desk.path / "in.parquet", row_group_size=7)
    desk.run("models.py:double", "in.parquet", "-o", "out.parquet", "--python", sys.executable)
    written = pyarrow.parquet.read_table(desk.path / "out.parquet").to_pylist()
    assert written == [{"row": n, "output": 2 * n} for n in range(20) if n != 13]
    assert [one["row"] for one in desk.lines("out.parquet.failed.jsonl")] == [13]
    assert desk.names() == ["in.parquet", "out.parquet", "out.parquet.failed.jsonl"]


@needs_pyarrow
def test_answers_without_a_common_type_are_texts_in_parquet(desk: Desk, store: Store) -> None:
    import pyarrow.parquet

    source = "import json\n\ndef handle(data, context):\n    return [row['body'] for row in data] if data else None\n"
    archive = store.mar("mirror", source=source, entry="handler.py:handle")
    desk.write("in.jsonl", [1, "a", {"x": [1]}, None])
    desk.run(archive, "in.jsonl", "-o", "out.parquet", "--python", sys.executable, "--batch-size", "2")
    written = pyarrow.parquet.read_table(desk.path / "out.parquet").to_pylist()
    assert [json.loads(one["output"]) for one in written][1:3] == ["a", {"x": [1]}]


def test_an_archive_is_run_in_batches(desk: Desk, store: Store) -> None:
    source = "def handle(data, context):\n    return [len(data)] * len(data) if data else None\n"
    archive = store.mar("count", source=source, entry="handler.py:handle")
    desk.write("in.jsonl", range(64))
    said = desk.run(archive, "in.jsonl", "-o", "one.jsonl", "--workers", "1")
    assert "--batch-size" in said
    assert {one["output"] for one in desk.lines("one.jsonl")} == {1}
    desk.run(archive, "in.jsonl", "-o", "many.jsonl", "--workers", "1", "--batch-size", "16")
    assert max(one["output"] for one in desk.lines("many.jsonl")) == 16


def test_an_onnx_model_needs_no_python(desk: Desk) -> None:
    model = ROOT / "crates" / "onnx" / "src" / "testdata" / "length.onnx"
    desk.write("in.jsonl", [[[1.0, 2.0, 3.0]]] * 5)
    desk.run(model, "in.jsonl", "-o", "out.jsonl", "--python", "/no/such/python", PATH="")
    rows = [*desk.lines("out.jsonl")]
    assert [one["row"] for one in rows] == list(range(5))


def test_an_objective_of_the_model_makes_no_row_too_late(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": n} for n in range(40)])
    desk.run("models.py:slow", "in.jsonl", "-o", "out.jsonl", "--workers", "1")
    assert [one["output"] for one in desk.lines("out.jsonl")] == list(range(40))


def test_an_answer_in_pieces_is_put_together(desk: Desk) -> None:
    desk.write("in.jsonl", [{"name": "a"}, {"name": "b", "words": 3}])
    desk.run("models.py:tell", "in.jsonl", "-o", "out.jsonl", "--workers", "1")
    assert [one["output"] for one in desk.lines("out.jsonl")] == ["a 0;a 1;", "b 0;b 1;b 2;"]


def test_a_running_server_is_asked(desk: Desk, start: Callable[..., Server]) -> None:
    server = start("serve", "models.py:double", cwd=desk.path)
    desk.write("in.jsonl", [{"number": n} for n in range(30)])
    desk.run(server.url("/predictions/double"), "in.jsonl", "-o", "out.jsonl")
    assert [one["output"] for one in desk.lines("out.jsonl")] == [2 * n for n in range(30) if n != 13]
    assert desk.lines("out.jsonl.failed.jsonl")[0]["status"] == 422
    said = desk.run(server.url("/predictions/nobody"), "in.jsonl", "-o", "none.jsonl", code=1)
    assert "nobody" in said


def test_stdin_and_stdout_make_a_pipe(desk: Desk) -> None:
    answered = desk.run("models.py:double", "-", "-o", "-", input='{"number": 1}\n{"number": 13}\n')
    assert [json.loads(line) for line in answered.splitlines()] == [
        {"row": 0, "output": 2},
        {"row": 1, "error": "unlucky", "status": 422},
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["models.py:double", "no.jsonl", "-o", "out.jsonl"], 1, "cannot read no.jsonl"),
        (["models.py:double", "in.txt", "-o", "out.jsonl"], 64, "no such file"),
        (["models.py:double", "in.jsonl", "-o", "out.xml"], 64, ".parquet"),
        (["models.py:nothing", "in.jsonl", "-o", "out.jsonl"], 1, "nothing"),
        (["models.py:double", "-", "-o", "out.jsonl"], 64, "-o -"),
        (["http://127.0.0.1:1/", "in.jsonl", "-o", "out.jsonl"], 64, "names no model"),
    ],
)
def test_what_cannot_be_done_is_said(desk: Desk, arguments: list[str], code: int, words: str) -> None:
    desk.write("in.jsonl", [1])
    assert words in desk.run(*arguments, code=code)
    assert desk.names() == ["in.jsonl"], "a job that did not begin leaves nothing behind"


def test_an_input_of_unknown_format_needs_a_flag(desk: Desk) -> None:
    (desk.path / "in.txt").write_text("1")
    assert "--format" in desk.run("models.py:double", "in.txt", "-o", "out.jsonl", code=64)


def test_an_output_that_exists_is_not_replaced_unless_asked(desk: Desk) -> None:
    desk.write("in.jsonl", [{"number": 1}])
    (desk.path / "out.jsonl").write_text("mine")
    assert "--overwrite" in desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", code=64)
    desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl", "--overwrite")
    assert desk.lines("out.jsonl") == [{"row": 0, "output": 2}]


def test_a_row_that_is_too_long_goes_to_the_side_file(desk: Desk) -> None:
    with (desk.path / "in.jsonl").open("w") as rows:
        rows.write('{"number": 1}\n{"number": "' + "x" * (65 << 20) + '"}\n{"number": 3}\n')
    said = desk.run("models.py:double", "in.jsonl", "-o", "out.jsonl")
    assert desk.lines("out.jsonl") == [{"row": 0, "output": 2}, {"row": 2, "output": 6}]
    [failed] = desk.lines("out.jsonl.failed.jsonl")
    assert (failed["row"], failed["status"]) == (1, 400)
    assert failed["error"] == "the row is longer than 64 MiB"
    assert len(failed["input"]) == 1024
    assert "1 failed" in said


def test_a_quote_that_is_never_closed_stops_the_job_after_the_rows_before_it(desk: Desk) -> None:
    (desk.path / "in.csv").write_text('number\n1\n2\n"3\n4\n5\n')
    job = ["models.py:double", "in.csv", "--numbers", "-o", "out.jsonl"]
    for _ in range(2):
        said = desk.run(*job, code=1)
        assert "the quote that opens in line 4 is never closed" in said
        assert not (desk.path / "out.jsonl").exists()
        assert [row["row"] for row in desk.lines("out.jsonl.part")] == [0, 1], "the rows before it are written"
