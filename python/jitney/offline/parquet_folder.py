"""A folder of Parquet files as the input of a job: its parts, and their rows.

Where a part begins and ends depends on the files alone, so that a job that goes on with other actors has the same
parts. Every row belongs to exactly one. Folders named `key=value` are partitions; what they say is a column that a
model gets only if it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from jitney.call.errors import InferError
from jitney.files.tables import open_parquet
from jitney.offline.location import Location, StoredFile
from jitney.offline.parquet import batches

ENDINGS = (".parquet", ".pq")
PARTS = 256
"""Parts of a large job, so that a part that is lost is little of it."""
ROWS = (1024, 65_536)
"""Fewest and most rows of a part; fewer, where a file has no more or its rows are large."""
BYTES_MAX = 32 << 20
"""Bytes of a part, as its columns are before they are compressed."""
FOOTERS_AT_ONCE = 16
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class FileFooter(NamedTuple):
    """What the listing and the footer of a file tell."""

    stored: StoredFile
    groups: tuple[int, ...]
    """Rows of each row group."""
    size: int
    """Bytes of all columns."""
    columns: tuple[str, ...]

    @property
    def rows(self) -> int:
        """All its rows."""
        return sum(self.groups)


@dataclass(frozen=True)
class FilePart:
    """Some rows of a file."""

    file: str
    first: int
    count: int

    @property
    def name(self) -> str:
        """The file of its answers, in the same partition."""
        return f"{self.file.removesuffix('.parquet')}-{self.first:010}.parquet"


def find(location: Location) -> list[FileFooter]:
    """The files of a folder, with their footers."""
    stored = [one for one in location.files() if _is_input(one.path)]
    if not stored:
        raise InferError(f"there is no Parquet file in {location.url}")

    def footer(file: StoredFile) -> FileFooter:
        with location.open(file.path) as opened, open_parquet(opened) as source:
            metadata = source.metadata
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            rows, size = tuple(one.num_rows for one in groups), sum(one.total_byte_size for one in groups)
            return FileFooter(file, rows, size, tuple(source.schema_arrow.names))

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        return list(pool.map(footer, stored))


def _is_input(path: str) -> bool:
    return path.endswith(ENDINGS) and not any(name.startswith(("_", ".")) for name in path.split("/"))


def cut(files: list[FileFooter]) -> list[FilePart]:
    """The parts of all files, whole row groups where these are small enough."""
    least, most = ROWS
    size = min(max(sum(file.rows for file in files) // PARTS, least), most)
    return [part for file in files for part in _cut(file, size)]


def _cut(file: FileFooter, size: int) -> Iterator[FilePart]:
    size = max(1, min(size, BYTES_MAX * file.rows // max(file.size, 1)))
    first = count = 0
    for rows in file.groups:
        if count and count + rows > size:
            yield FilePart(file.stored.path, first, count)
            first, count = first + count, 0
        count += rows
        while count > size:
            yield FilePart(file.stored.path, first, size)
            first, count = first + size, count - size
    if count:
        yield FilePart(file.stored.path, first, count)


def check_columns(files: list[FileFooter], columns: list[str] | None, reserved: tuple[str, ...]) -> None:
    """Raises `InferError` if a file lacks a column, or has one that an answer has too."""
    for file in files:
        path, there = file.stored.path, [*file.columns, *partition(file.stored.path)]
        for name in columns or ():
            if name not in there:
                raise InferError(f"{path} has no column {name!r}; its columns are {', '.join(map(repr, there))}")
        for name in reserved:
            if name in file.columns:
                raise InferError(f"{path} has a column {name!r}, as its answers have; leave out --with-input")


def read(location: Location, part: FilePart, columns: list[str] | None) -> Any:
    """The rows of a part as an Arrow table, with all columns of the file or those of the named that it has."""
    import pyarrow

    found, missing = [], part.count
    with location.open(part.file) as opened, open_parquet(opened) as source:
        inside = [name for name in source.schema_arrow.names if columns is None or name in columns]
        for batch in batches(source, part.first, inside or None):
            found.append(batch.slice(0, missing))
            missing -= len(found[-1])
            if not missing:
                break
    if missing:
        raise InferError(f"{part.file} has {missing} rows less than when the job began; has it changed?")
    return pyarrow.Table.from_batches(found)


def arguments(table: Any, part: FilePart, columns: list[str] | None) -> Any:
    """What a model gets of a part: all columns of the file, or those that are named, partitions too."""
    import pyarrow

    if columns is None:
        return table
    values = partition(part.file)

    def column(name: str) -> Any:
        inside = name in table.column_names
        return table.column(name) if inside else pyarrow.array([values[name]] * len(table))

    return pyarrow.table({name: column(name) for name in columns})


def partition(path: str) -> dict[str, Any]:
    """The columns that the folders of a path stand for; whole numbers become numbers."""
    pairs = [folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder]
    return {unquote(name): _value(unquote(text)) for name, text in pairs}


def _value(text: str) -> Any:
    if text == NO_VALUE:
        return None
    is_number = text.removeprefix("-").isdecimal() and text.isascii() and str(int(text)) == text
    return int(text) if is_number else text
