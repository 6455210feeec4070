"""Folders of Parquet files as inputs and outputs of a job: parts, partitions, notes, and types in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jitney.call.errors import InferError
from jitney.offline import parquet_folder
from jitney.offline.answer_folder import AnswerFolder, PartNote, common_field
from jitney.offline.fed_program import outcome_columns
from jitney.offline.location import Location, StoredFile
from jitney.offline.parquet_folder import FileFooter, FilePart

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def file(*groups: int, size: int = 0, path: str = "a.parquet") -> FileFooter:
    return FileFooter(StoredFile(path, 1, 1), groups, size, ("n",))


@pytest.mark.parametrize("groups", [(1,), (1024,), (1025,), (500, 500, 500), (3000, 1, 1, 5000), (100_000,)])
def test_every_row_is_in_one_part(groups: tuple[int, ...]) -> None:
    parts = parquet_folder.cut([file(*groups)])
    rows = [row for part in parts for row in range(part.first, part.first + part.count)]
    assert rows == list(range(sum(groups)))
    assert len({part.name for part in parts}) == len(parts)
    assert all(0 < part.count <= 1024 for part in parts)


def test_parts_keep_row_groups_whole_and_large_rows_apart() -> None:
    assert [part.count for part in parquet_folder.cut([file(600, 600, 400)])] == [600, 1000]
    assert [part.count for part in parquet_folder.cut([file(3, size=96 << 20)])] == [1, 1, 1]
    assert max(part.count for part in parquet_folder.cut([file(50_000_000)])) == 65_536
    assert parquet_folder.cut([file(0), file()]) == []


def test_names_of_two_files_never_meet() -> None:
    files = [file(2000, path=path) for path in ("a.parquet", "a.pq", "a-0000001024.parquet", "x=1/a.parquet")]
    names = [part.name for part in parquet_folder.cut(files)]
    assert len(set(names)) == len(names) == 8
    assert names[-1] == "x=1/a-0000001024.parquet"


def test_partitions_are_columns_that_are_asked_for(tmp_path: Path) -> None:
    path = "year=2024/land=%C3%A5=b/none=__HIVE_DEFAULT_PARTITION__/a.parquet"
    assert parquet_folder.partition(path) == {"year": 2024, "land": "å=b", "none": None}
    (tmp_path / path).parent.mkdir(parents=True)
    table = pyarrow.table({"n": list(range(10)), "m": [0.5] * 10})
    parquet.write_table(table, tmp_path / path, row_group_size=4)
    for hidden in ("_done/b.parquet", ".tmp/c.parquet", "notes.txt"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_text("")
    source = Location(str(tmp_path))
    (found,) = parquet_folder.find(source)
    assert (found.stored.path, found.groups, found.columns) == (path, (4, 4, 2), ("n", "m"))
    part = FilePart(path, 3, 6)
    for columns in (None, ["n"], ["year", "n"], ["land"]):
        rows = parquet_folder.arguments(parquet_folder.read(source, part, columns), part, columns).to_pylist()
        every = [{"n": n, "m": 0.5, "year": 2024, "land": "å=b"} for n in range(3, 9)]
        assert rows == [{name: row[name] for name in columns or ["n", "m"]} for row in every]
    with pytest.raises(InferError, match="has it changed"):
        parquet_folder.read(source, FilePart(path, 3, 8), None)
    parquet_folder.check_columns([found], ["n", "year"], ("row",))
    with pytest.raises(InferError, match="no column 'x'; its columns are 'n', 'm', 'year'"):
        parquet_folder.check_columns([found], ["x"], ())
    with pytest.raises(InferError, match="leave out --with-input"):
        parquet_folder.check_columns([found], None, ("m",))


def answers(*outputs: Any) -> Any:
    lines = [json.dumps({"output": one} if one != "bad" else {"error": "bad", "status": 422}) for one in outputs]
    fields, columns = outcome_columns([line.encode() for line in lines])
    return pyarrow.table(columns, schema=pyarrow.schema(fields))


def test_a_part_is_done_when_it_is_noted_and_a_job_is_told_from_others(tmp_path: Path) -> None:
    location, job = Location(str(tmp_path / "out")), {"model": "m", "input": "1"}
    folder = AnswerFolder(location, job)
    assert folder.open(False) == {}
    note = folder.write(7, "x=1/a-0.parquet", answers(1, "bad", 3), 1)
    again = folder.write(7, "x=1/a-0.parquet", answers(1, "bad", 3), 1)
    assert note == again and (note.rows, note.failed) == (3, 1)
    assert folder.open(False) == {7: note}
    with pytest.raises(InferError, match="model was 'm', now it is 'n'"):
        AnswerFolder(location, {**job, "model": "n"}).open(False)
    with pytest.raises(InferError, match="the input has changed"):
        AnswerFolder(location, {**job, "input": "2"}).open(False)
    folder.finish([note])
    assert sorted(one.path for one in location.files()) == ["_SUCCESS", "x=1/a-0.parquet"]
    assert folder.open(False) is None
    assert AnswerFolder(location, {**job, "model": "n"}).open(True) == {}
    assert not (tmp_path / "out/x=1").exists()


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_text("")
    for overwrite in (False, True):
        with pytest.raises(InferError, match="of no job"):
            AnswerFolder(Location(str(tmp_path)), {}).open(overwrite)
    assert (tmp_path / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("one", "other", "kind", "values"),
    [
        ([1, 2], [0.5, None], "double", [1.0, 2.0, 0.5, None]),
        ([None], [1], "int64", [None, 1]),
        (["bad"], ["text"], "string", [None, "text"]),
        ([1], ["text"], "string", ["1", '"text"']),
        ([1, "text"], [None, 2], "string", ["1", '"text"', None, "2"]),
        ([{"a": 1}], [{"a": 2}], "struct<a: int64>", [{"a": 1}, {"a": 2}]),
    ],
)
def test_outputs_get_the_type_that_all_have_in_common(
    tmp_path: Path, one: list, other: list, kind: str, values: list
) -> None:
    folder = AnswerFolder(Location(str(tmp_path)), {"model": "m"})
    folder.open(False)
    notes: dict[int, PartNote] = {}
    for number, outputs in enumerate((one, other)):
        notes[number] = folder.write(number, f"{number}.parquet", answers(*outputs), 0)
    field = common_field(notes.values())
    for number, note in notes.items():
        if note.field != field:
            notes[number] = folder.rewrite(number, f"{number}.parquet", note, field)
    assert {note.field for note in notes.values()} == {field} == {common_field(notes.values())}
    folder.finish(notes.values())
    table = parquet.read_table(tmp_path)
    assert str(table.schema.field("output").type) == kind
    assert table.column("output").to_pylist() == values


def test_one_place_must_not_lie_in_the_other() -> None:
    here = Location("/data/rows")
    assert here.holds(Location("/data/rows")) and here.holds(Location("/data/rows/out"))
    assert not here.holds(Location("/data/rows-out")) and not here.holds(Location("/data"))
    bucket = Location("s3://b/rows?region=x")
    assert bucket.holds(Location("s3://b/rows/out")) and not bucket.holds(Location("s3://b/out"))


def test_an_address_of_s3_says_where_its_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    query = "region=eu-west-1&endpoint_override=127.0.0.1:9000&scheme=http"
    assert Location("s3://b/rows").url == f"s3://b/rows?{query}"
    assert Location(f"s3://b/rows?{query}").url == f"s3://b/rows?{query}"
    assert Location("gs://b/rows").url == "gs://b/rows"
