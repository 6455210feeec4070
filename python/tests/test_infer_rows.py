"""What `jitney.infer` takes and gives: tables, iterables, refusals, and the line that tells how far it is."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pandas
import pyarrow
import pytest

import jitney
from jitney.offline import infer as offline
from jitney.offline import progress_bar
from jitney.offline.infer import Outputs
from jitney.offline.row_source import read_rows


def lines(rows: Any) -> list[Any]:
    source = read_rows(rows)
    assert source.rows is not None
    return [json.loads(offline._line(row)) for row in source.rows]


FRAME = pandas.DataFrame({"text": ["a", "b"], "n": [1, 2]}, index=["x", "y"])
ROWS = [{"text": "a", "n": 1}, {"text": "b", "n": 2}]


@pytest.mark.parametrize(
    "table",
    [
        FRAME,
        pyarrow.table({"text": ["a", "b"], "n": [1, 2]}),
        pyarrow.record_batch({"text": ["a", "b"], "n": [1, 2]}),
        ROWS,
        tuple(ROWS),
    ],
)
def test_a_table_is_rows_by_column_names(table):
    assert lines(table) == ROWS
    assert read_rows(table).count == 2


def test_generators_and_readers_are_read_without_a_count():
    assert (lines(dict(row) for row in ROWS), read_rows(iter(ROWS)).count) == (ROWS, None)
    table = pyarrow.table({"text": ["a", "b"], "n": [1, 2]})
    assert lines(table.to_reader()) == ROWS


class Streamed:
    """Something that only offers itself as Arrow, as polars does."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pyarrow.table({"n": [1]}).__arrow_c_stream__(requested_schema)


def test_what_offers_itself_as_arrow_is_read():
    assert lines(Streamed()) == [{"n": 1}]


def test_missing_cells_are_null_and_dates_are_texts():
    when = pandas.Timestamp("2024-05-01")
    frame = pandas.DataFrame({"a": [1.5, None], "when": [when, pandas.NaT], "c": pandas.array([1, None], "Int64")})
    assert lines(frame) == [
        {"a": 1.5, "when": "2024-05-01T00:00:00", "c": 1},
        {"a": None, "when": None, "c": None},
    ]
    assert lines(pandas.Series(["a", "b"])) == ["a", "b"]


async def no_rows() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"text": "a"}, "a dictionary is one row, or columns"),
        ("nowhere.jsonl", r"there is no file or folder 'nowhere.jsonl' .* write \['nowhere.jsonl'\]"),
        (b"text", "bytes are no rows"),
        (7, "a int is no rows; rows are a path, a pandas"),
        (no_rows(), "asynchronous rows"),
        (pandas.DataFrame([[1, 2]]), "named by texts.* one is named 0"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "two columns 'a'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(rows, words):
    with pytest.raises(jitney.InferError, match=words):
        jitney.infer("app:model", rows)


@jitney.batch
def shout(text: list[str], times: list[int] = 1) -> list[str]:  # type: ignore[assignment]
    return text


@jitney.batch
def whole(row: list[dict]) -> list[int]:
    return [len(one) for one in row]


def test_columns_that_are_no_arguments_are_named_before_the_job_begins():
    with pytest.raises(
        jitney.InferError, match=r"a column 'n', but shout takes 'text', 'times'; .*table\[\['text'\]\]"
    ):
        jitney.infer(shout, FRAME)
    with pytest.raises(jitney.InferError, match=r"no column 'text', .*rename its column 'texts'"):
        jitney.infer(shout, FRAME.rename(columns={"text": "texts"}))
    with pytest.raises(jitney.InferError, match="has no endpoint 'nope'"):
        jitney.infer(shout, FRAME, endpoint="nope")
    offline.check_columns(("a", "b"), whole, None)


def test_a_handle_is_no_model_of_a_job_and_cannot_be_run():
    handle = jitney.connect("http://127.0.0.1:1").model("m")
    with pytest.raises(jitney.InferError, match=r"what jitney\.run returned"):
        jitney.infer(handle, ROWS)
    with pytest.raises(TypeError, match="runs already"):
        jitney.run(handle)


def outputs(*values: Any, index: Any = None) -> Outputs:
    def given() -> Iterator[Any]:
        yield from values

    return Outputs(given(), index)  # type: ignore[arg-type]


def test_outputs_become_tables():
    frame = outputs("A", "B", index=FRAME.index).to_pandas()
    assert FRAME.join(frame).to_dict("list") == {"text": ["a", "b"], "n": [1, 2], "output": ["A", "B"]}
    table = outputs({"label": "cat", "p": 0.5}, jitney.Error("no legs"), {"label": "dog"}).to_arrow()
    assert table.to_pydict() == {
        "label": ["cat", None, "dog"],
        "p": [0.5, None, None],
        "error": [None, "no legs", None],
    }
    assert outputs([{"area": 3}], [{"area": 8}]).to_pandas()["area"].tolist() == [3, 8]
    assert len(outputs(index=FRAME.index[:0]).to_pandas()) == 0
    begun = outputs(1, 2)
    assert next(begun) == 1
    with pytest.raises(jitney.InferError, match="read already"):
        begun.to_pandas()


def test_the_bar_tells_rows_rate_failures_and_what_is_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with progress_bar.ProgressBar(4, True, out) as bar:
        for at in range(2):
            now[0] += 30
            bar.count(failed=at == 1)
        assert bar.line() == " 50% |████████████            | 2 of 4 rows, 0.0/s, 1 failed, 1:00 left"
    assert out.getvalue().startswith("\r 25% |") and out.getvalue().endswith("\n")
    quiet = io.StringIO()
    with progress_bar.ProgressBar(None, None, quiet) as bar:
        bar.count(failed=False)
        assert bar.line().startswith("1 rows, ")
    assert quiet.getvalue() == ""
