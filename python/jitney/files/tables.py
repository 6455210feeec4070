"""Reads tables: Parquet, CSV and JSON, by the pandas or pyarrow that the model has.

A few bytes of a Parquet file may stand for gigabytes: a value that is written once, in a dictionary, counts for every
row that names it. How large the columns become is computed from its pages and from the lengths in dictionaries. JSON
names only the cells it has, and a frame has one for every row and column. And pandas takes time for each column.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterable
from typing import Any

from jitney.files.limits import FileRejected, limits
from jitney.files.parquet_pages import column_chunks

PARQUET = b"PAR1"
UNPICKLES_NOTHING = (14, 0, 1)
"""Before this version pyarrow unpickles types that a file names (CVE-2023-47248)."""
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}
"""Bytes of a value by its type; the others have 8, a text where it begins."""
OBJECT_BYTES = 128
"""Bytes of a Python object in a frame: a list, a structure or a decimal in a row."""
ROWS_AT_ONCE = 65536
COLUMNS_MAX = 10_000
"""Columns of a table."""
REPEATED_MAX = 1000
"""Columns of a CSV file whose name another one has. For each pandas looks through all names: seconds for 10,000."""
INDEX_MAX = 100


def read_frame(content: Any) -> Any:
    """A frame of pandas, from Parquet or CSV."""
    try:
        return _frame(content)
    except (FileRejected, MemoryError):
        raise
    except Exception as error:  # Each of the libraries has errors of its own.
        raise FileRejected(f"the table cannot be read: {error}") from None


def _frame(content: Any) -> Any:
    pandas: Any = sys.modules["pandas"]
    if isinstance(content, str):
        _check_csv(content)
        return pandas.read_csv(io.StringIO(content))
    if bytes(content[:4]) != PARQUET:
        _check_csv(bytes(content).decode("latin-1"))
        return pandas.read_csv(io.BytesIO(content))
    check_parquet(content)
    return pandas.read_parquet(io.BytesIO(content))


def read_json_frame(value: Any, orient: str, dtype: Any) -> Any:
    """A frame of pandas, from what JSON says in one of pandas' forms."""
    if orient == "split" and not isinstance(value, dict):
        raise FileRejected("it is no object with columns and data")
    check_cells([value.get("columns"), *value.get("data", ())] if orient == "split" else value)
    return sys.modules["pandas"].read_json(io.StringIO(json.dumps(value)), orient=orient, dtype=dtype)


def check_columns(count: int) -> None:
    """Rejects a table of more columns than are read."""
    if count > COLUMNS_MAX:
        raise FileRejected(f"it has {count} columns, and at most {COLUMNS_MAX} are read: send fewer at a time")


def check_cells(table: Any) -> None:
    """Rejects rows, or columns, of which each has few cells and all together many."""
    lines = [line for line in _values(table) if isinstance(line, (list, dict))]
    names = {key for line in lines if isinstance(line, dict) for key in line}
    length = max((len(line) for line in lines if isinstance(line, list)), default=0) + len(names)
    check_columns(len(table) if isinstance(table, dict) and lines else length)
    # One that has all its cells is as large as what came.
    limits.check_expansion(8 * len(lines) * length, 8 * sum(map(len, lines)))


def _values(table: Any) -> Iterable[Any]:
    return table.values() if isinstance(table, dict) else table if isinstance(table, list) else ()


def _check_csv(text: str) -> None:
    """The names of the columns, and the first row: values that it has before them are levels of an index."""
    rows = csv.reader(io.StringIO(text, newline=""))
    filled = (row for row in rows if len(row) > 1 or "".join(row).strip())
    try:
        beginning: list[list[str]] = [*itertools.islice(filled, 2), [], []]
    except csv.Error as error:
        raise FileRejected(f"the CSV file cannot be read: {error}") from None
    names, first = beginning[:2]
    check_columns(len(names))
    named = list(filter(None, names))  # pandas numbers the others.
    if (repeated := len(named) - len(set(named))) > REPEATED_MAX:
        raise FileRejected(f"{repeated} of its {len(names)} columns have the name of another one")
    if len(first) > len(names) + INDEX_MAX:
        raise FileRejected(f"its first row has {len(first)} values, and there are {len(names)} columns")


def open_parquet(source: Any, **options: Any) -> Any:
    """A Parquet file, to be read piece by piece."""
    import pyarrow.parquet

    if tuple(map(int, pyarrow.__version__.split(".")[:3])) < UNPICKLES_NOTHING:
        raise FileRejected(
            f"pyarrow {pyarrow.__version__} unpickles what a file names: the server needs 14.0.1 or newer"
        )
    return pyarrow.parquet.ParquetFile(source, **options)


def check_parquet(content: Any) -> None:
    """Rejects a file whose columns become larger than is allowed."""
    import pyarrow

    try:
        with open_parquet(io.BytesIO(content)) as source:
            check_columns(source.metadata.num_columns)
            size, texts, texts_max = _claimed(source.schema, content)
        limits.check_expansion(size, len(content))
        if size + texts_max > limits.expanded:
            limits.check_expansion(size + _text_size(content, texts), len(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise FileRejected(f"the Parquet file cannot be read: {error}") from None


def _claimed(schema: Any, content: Any) -> tuple[int, list[str], int]:
    """The bytes of all columns, without what dictionaries stand for; the columns of texts; the most that those add."""
    size, texts, texts_max = 0, set(), 0
    for chunk in column_chunks(content):
        kind = schema.column(chunk.place)
        width = WIDTHS.get(kind.physical_type, 8)
        if kind.physical_type == "FIXED_LEN_BYTE_ARRAY":
            width = kind.length
        size += chunk.size + chunk.values * width
        size += _objects(kind, chunk.rows, chunk.values) * OBJECT_BYTES
        if kind.physical_type == "BYTE_ARRAY":
            texts.add(kind.path)
            texts_max += chunk.size * chunk.values
    return size, sorted(texts), texts_max


def _objects(kind: Any, rows: int, values: int) -> int:
    """How many Python objects a column becomes at most."""
    depth: int = kind.path.count(".") - kind.name.count(".")
    if kind.logical_type.type == "DECIMAL":
        return values * (depth + 1)
    is_list = kind.max_repetition_level == 1 and depth <= 2
    return rows if is_list else values * depth


def _text_size(content: Any, columns: list[str]) -> int:
    """The bytes of all texts. They are read as numbers of dictionary entries, which expands none of them."""
    with open_parquet(io.BytesIO(content), read_dictionary=columns) as source:
        batches = source.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns)
        return sum(_length(column) for batch in batches for column in batch.columns)


def _length(column: Any) -> int:
    """The bytes of the texts in a column, also inside lists and structures."""
    import pyarrow.compute

    if hasattr(column, "dictionary"):
        lengths = pyarrow.compute.binary_length(column.dictionary).take(column.indices)
        return int(pyarrow.compute.sum(lengths).as_py() or 0)
    inside = column.flatten() if hasattr(column, "flatten") else []
    return sum(map(_length, inside if isinstance(inside, list) else [inside]))
