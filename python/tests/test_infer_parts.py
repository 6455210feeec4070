"""The rows of a part: every row of an input belongs to exactly one, however it is cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jitney.offline.infer_parts import Input


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("position", [0, 2])
def test_every_line_is_in_one_part(tmp_path: Path, size: int, position: int) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'1\n22\n\n  \r\n{"a": 3}\r\n\n4')
    end = file.stat().st_size
    whole = Input(str(file), "jsonl", False)
    found = [
        line
        for begin in range(position, end, size)
        for line in whole.lines({"begin": begin, "end": min(begin + size, end), "first": begin == position})
    ]
    assert found == [b"1", b"22", b'{"a": 3}', b"4"][1 if position else 0 :]


def test_records_become_objects_and_strange_ones_keep_their_place(tmp_path: Path) -> None:
    file, header = tmp_path / "in.csv", b"\xef\xbb\xbftext,size\r\n"
    records = b'"a ""b""\nc",1\r\n\r\nalone\r\nd,007\ne,2.5'
    file.write_bytes(header + records)
    part = {"begin": len(header), "end": len(header) + len(records), "rows": 4, "too_long": False}
    found = [json.loads(line) for line in Input(str(file), "csv", True).lines(part)]
    assert found == [{"text": 'a "b"\nc', "size": 1}, None, {"text": "d", "size": "007"}, {"text": "e", "size": 2.5}]
    with pytest.raises(ValueError, match="has it changed"):
        list(Input(str(file), "csv", True).lines({**part, "rows": 5}))
    too_long = Input(str(file), "csv", True).lines({**part, "rows": 1, "too_long": True})
    assert list(too_long) == [b"null"], "nobody reads a row that is too long"


def test_rows_of_parquet_are_counted_from_the_start(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    file = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": list(range(20))}), file, row_group_size=7)
    found = Input(str(file), "parquet", False).lines({"skip": 5, "count": 10})
    assert [json.loads(line)["n"] for line in found] == list(range(5, 15))


def test_images_are_their_paths(tmp_path: Path) -> None:
    whole = Input(str(tmp_path), "images", False)
    assert whole.fed_format == "images"
    assert list(whole.lines({"names": ["a.png", "b/c.jpg"]})) == [
        bytes(tmp_path / "a.png"),
        bytes(tmp_path / "b/c.jpg"),
    ]
