"""Reads tables: Parquet, CSV and JSON, by the pandas or pyarrow that the model has.

A few bytes of a Parquet file may stand for gigabytes: a value that is written once, in a dictionary, counts for every
row that names it. How large the columns become is computed from the footer and from the lengths in dictionaries.
"""

from __future__ import annotations

import io
import sys
from typing import Any

from jitney.files.limits import FileRejected, limits

PARQUET = b"PAR1"
UNPICKLES_NOTHING = (14, 0, 1)
"""Before this version pyarrow unpickles types that a file names (CVE-2023-47248)."""
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}
"""Bytes of a value by its type; the others have 8, a text where it begins."""
ROWS_AT_ONCE = 65536


def read_frame(content: Any) -> Any:
    """A frame of pandas, from Parquet or CSV."""
    pandas: Any = sys.modules["pandas"]
    if isinstance(content, str):
        return pandas.read_csv(io.StringIO(content))
    if bytes(content[:4]) != PARQUET:
        return pandas.read_csv(io.BytesIO(content))
    check_parquet(content)
    return pandas.read_parquet(io.BytesIO(content))


def read_json_frame(text: str, orient: str, dtype: Any) -> Any:
    """A frame of pandas, from JSON in one of pandas' forms."""
    return sys.modules["pandas"].read_json(io.StringIO(text), orient=orient, dtype=dtype)


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
            size, texts, texts_max = _claimed(source.metadata)
        limits.check_expansion(size, len(content))
        if size + texts_max > limits.expanded:
            limits.check_expansion(size + _text_size(content, texts), len(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise FileRejected(f"the Parquet file cannot be read: {error}") from None


def _claimed(footer: Any) -> tuple[int, list[str], int]:
    """The bytes of all columns, without what dictionaries stand for; the columns of texts; the most that those add."""
    size, texts, texts_max = 0, set(), 0
    for group in range(footer.num_row_groups):
        for place in range(footer.num_columns):
            column = footer.row_group(group).column(place)
            width = WIDTHS.get(column.physical_type, 8)
            if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
                width = footer.schema.column(place).length
            size += column.total_uncompressed_size + column.num_values * width
            if column.physical_type == "BYTE_ARRAY":
                texts.add(column.path_in_schema)
                texts_max += column.total_uncompressed_size * column.num_values
    return size, sorted(texts), texts_max


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
