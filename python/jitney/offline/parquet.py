"""`python -m jitney.offline.parquet`: Parquet files for `jitney infer`, by pyarrow, as lines of JSON.

`read` prints how many rows there are and then one line per row; `write` turns lines into a file that
appears in one step. Both hold a few thousand rows at a time, however large the file is.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jitney.files.limits import FileRejected
from jitney.files.tables import open_parquet

CHUNK = 4096
"""Rows in memory at a time."""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; errors go to stderr."""
    flags = parser().parse_args(arguments)
    try:
        import pyarrow
    except ImportError:
        print(f"error: Parquet needs pyarrow: {sys.executable} -m pip install pyarrow", file=sys.stderr)
        return 1
    try:
        if flags.command == "read":
            read(flags.file, flags.skip)
        else:
            write(flags.lines, flags.file)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # The reader is gone: no error at the exit.
        return 1
    except (OSError, pyarrow.ArrowException, FileRejected) as error:
        print(f"error: {flags.file}: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m jitney.offline.parquet")
    commands = top.add_subparsers(dest="command", required=True)
    reading = commands.add_parser("read", help="print the rows of a file as lines of JSON")
    reading.add_argument("file", type=Path)
    reading.add_argument("--skip", type=int, default=0, help="rows to leave out at the beginning")
    writing = commands.add_parser("write", help="write lines of JSON as a file")
    writing.add_argument("lines", type=Path)
    writing.add_argument("file", type=Path)
    return top


def read(file: Path, skip: int) -> None:
    """Prints the number of all rows, then every row from `skip` on."""
    with open_parquet(file) as source:
        print(source.metadata.num_rows, flush=True)
        for batch in batches(source, skip):
            sys.stdout.write("".join(f"{json_line(row)}\n" for row in batch.to_pylist()))
    sys.stdout.flush()


def rows(file: str, skip: int, count: int) -> Iterator[str]:
    """Some rows of a file, each as JSON."""
    with open_parquet(file) as source:
        for batch in batches(source, skip):
            yield from map(json_line, batch.slice(0, count).to_pylist())
            count -= len(batch)
            if count <= 0:
                return


def batches(source: Any, skip: int, columns: list[str] | None = None) -> Iterator[Any]:
    """Everything from a row on, some thousand rows at a time."""
    groups, skip = _groups_from(source, skip)
    if not groups:
        return
    for batch in source.iter_batches(batch_size=CHUNK, row_groups=groups, columns=columns):
        if skip < len(batch):
            yield batch.slice(skip)
        skip = max(0, skip - len(batch))


def _groups_from(source: Any, skip: int) -> tuple[list[int], int]:
    """The row groups that hold rows from `skip` on, and how many rows of the first to leave out."""
    count = source.metadata.num_row_groups
    for group in range(count):
        rows = source.metadata.row_group(group).num_rows
        if skip < rows:
            return list(range(group, count)), skip
        skip -= rows
    return [], 0


def json_line(row: dict[str, Any]) -> str:
    """A row as a line of JSON, without its end."""
    try:
        return _encode(row)
    except ValueError:  # Not-a-number, which JSON does not have.
        return _encode(_without_nan(row))


def _plain(value: Any) -> Any:
    """Values that JSON does not know by itself; bytes as handlers expect them in JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value)


_encode = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return value


def write(lines: Path, file: Path) -> None:
    """Writes lines as a Parquet file. Answers that have no type in common are kept as JSON texts."""
    import pyarrow

    beside = file.with_name(file.name + ".next")
    try:
        _write(lines, beside, texts=False)
    except (pyarrow.ArrowException, OverflowError):
        _write(lines, beside, texts=True)
    with beside.open("rb") as written:
        os.fsync(written.fileno())
    beside.replace(file)


def _write(lines: Path, file: Path, *, texts: bool) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = _schema(lines, texts)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for rows in _chunks(lines, texts):
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))


def _schema(lines: Path, texts: bool) -> Any:
    """The schema that all rows share; it is known only when all of them were seen."""
    import pyarrow

    schema = pyarrow.schema([("row", pyarrow.int64())])
    for rows in _chunks(lines, texts):
        one = pyarrow.Table.from_pylist(rows).schema
        schema = pyarrow.unify_schemas([schema, one], promote_options="permissive")
    return schema


def _chunks(lines: Path, texts: bool) -> Iterator[list[dict[str, Any]]]:
    with lines.open(encoding="utf-8") as source:
        rows: list[dict[str, Any]] = []
        for row in _rows(source, texts):
            rows.append(row)
            if len(rows) == CHUNK:
                yield rows
                rows = []
        if rows:
            yield rows


def _rows(source: Iterable[str], texts: bool) -> Iterator[dict[str, Any]]:
    for line in source:
        row: dict[str, Any] = json.loads(line)
        if texts:
            row = {key: value if key in ("row", "file") else json.dumps(value) for key, value in row.items()}
        yield row


if __name__ == "__main__":
    sys.exit(main())
