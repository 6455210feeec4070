"""What a Parquet file holds, by the headers of its pages. The sizes in its footer are claims; no more is ever unpacked
of a page than its own header says. And some broken footers make pyarrow end the process when it is asked for them.

The headers are Thrift's compact form, of which only numbers are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from jitney.files.limits import FileRejected

DEPTH_MAX = 16
ROW_GROUPS, COLUMNS, ROWS, CHUNK = 4, 1, 3, 3
VALUES, PACKED, DATA_AT, DICTIONARY_AT = 5, 7, 9, 11
PAGE_UNPACKED, PAGE_PACKED, PAGE_HEADS = 2, 3, (5, 8)
"""Numbers of fields; those of a page's head are there for pages with values."""


class ColumnChunk(NamedTuple):
    """One column of one group of rows."""

    place: int
    rows: int
    values: int
    size: int
    """Bytes of its pages once they are unpacked."""


def column_chunks(content: Any) -> Iterator[ColumnChunk]:
    """All of a file."""
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    try:
        for group in _Thrift(content, footer).struct()[ROW_GROUPS]:
            for place, chunk in enumerate(group[COLUMNS]):
                yield ColumnChunk(place, group[ROWS], chunk[CHUNK][VALUES], _unpacked(content, chunk[CHUNK]))
    except (KeyError, IndexError, TypeError):
        raise FileRejected("the Parquet file cannot be read: its footer or a page is broken") from None


def _unpacked(content: Any, chunk: dict[int, Any]) -> int:
    """The bytes of a column's pages."""
    start = min(chunk[DATA_AT], chunk.get(DICTIONARY_AT) or chunk[DATA_AT])
    reader, size, values = _Thrift(content, start), 0, 0
    while values < chunk[VALUES] and reader.at < start + chunk[PACKED]:
        page = reader.struct()
        reader.skip(page[PAGE_PACKED])
        size += max(0, page[PAGE_UNPACKED])
        values += sum(page[head][1] for head in PAGE_HEADS if head in page)
    return size


class _Thrift:
    """Reads from a place on."""

    def __init__(self, content: Any, at: int) -> None:
        self._content, self.at = content, at
        self.skip(0)

    def skip(self, count: int) -> None:
        """Leaves bytes out."""
        self.at += count
        if count < 0 or not 0 <= self.at <= len(self._content):
            raise IndexError

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a structure by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        if depth > DEPTH_MAX:
            raise IndexError
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = head & 15 == 1 if head & 15 in (1, 2) else self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (4, 5, 6):
            return self._number()
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (9, 10):
            head = self._byte()
            count = self._natural() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 11:
            return self._map(depth)
        # A text, a number with a point, or a byte.
        return self.skip(self._natural() if kind == 8 else 8 if kind == 7 else 1)

    def _map(self, depth: int) -> None:
        if count := self._natural():
            kinds = self._byte()
            for _ in range(count):
                self._value(kinds >> 4, depth + 1)
                self._value(kinds & 15, depth + 1)

    def _byte(self) -> int:
        byte: int = self._content[self.at]
        self.at += 1
        return byte

    def _natural(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise IndexError

    def _number(self) -> int:
        number = self._natural()
        return (number >> 1) ^ -(number & 1)
