"""Parquet files as lines of JSON and back, with a real pyarrow."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from jitney.offline.parquet import main

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def read(capsys: pytest.CaptureFixture[str], file: Path, skip: int = 0) -> tuple[int, list[object]]:
    assert main(["read", str(file), "--skip", str(skip)]) == 0
    count, *lines = capsys.readouterr().out.splitlines()
    return int(count), [json.loads(line) for line in lines]


def test_every_row_is_a_place_to_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table({"n": list(range(10))}), file, row_group_size=4)
    for skip in range(11):
        assert read(capsys, file, skip) == (10, [{"n": n} for n in range(skip, 10)])


def test_values_without_a_json_type_are_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.parquet"
    row = {"bytes": b"\xff", "day": datetime.date(2026, 1, 2), "nan": float("nan"), "list": [{"x": float("inf")}]}
    parquet.write_table(pyarrow.Table.from_pylist([row]), file)
    assert read(capsys, file)[1] == [{"bytes": "/w==", "day": "2026-01-02", "nan": None, "list": [{"x": None}]}]


@pytest.mark.parametrize(
    ("outputs", "written"),
    [
        ([1, 2.5, None], [1.0, 2.5, None]),
        ([{"a": 1}, {"a": 2, "b": "x"}], [{"a": 1, "b": None}, {"a": 2, "b": "x"}]),
        ([1, "a"], ["1", '"a"']),
        ([{}, {}], ["{}", "{}"]),
        ([], []),
    ],
)
def test_outputs_keep_a_type_that_they_have_in_common(
    tmp_path: Path, outputs: list[object], written: list[object]
) -> None:
    lines, file = tmp_path / "part", tmp_path / "out.parquet"
    lines.write_text("".join(f"{json.dumps({'row': row, 'output': one})}\n" for row, one in enumerate(outputs)))
    assert main(["write", str(lines), str(file)]) == 0
    rows = parquet.read_table(file).to_pylist()
    assert [one["row"] for one in rows] == list(range(len(outputs)))
    assert [one["output"] for one in rows] == written
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".next"] == []


def test_a_type_may_change_after_many_rows(tmp_path: Path) -> None:
    lines, file = tmp_path / "part", tmp_path / "out.parquet"
    outputs = [1] * 5000 + [0.5]
    lines.write_text("".join(f"{json.dumps({'row': row, 'output': one})}\n" for row, one in enumerate(outputs)))
    assert main(["write", str(lines), str(file)]) == 0
    assert parquet.read_table(file).column("output").to_pylist() == outputs


def test_a_file_that_is_not_parquet_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.parquet").write_text("nonsense")
    assert main(["read", str(tmp_path / "in.parquet")]) == 1
    assert "in.parquet" in capsys.readouterr().err
