"""The rows of a part of an input, as lines for the `jitney` program; `jitney infer` cut it into parts.

A row that cannot be read becomes `null`, and the command finds the mistake by itself: here only the
number and the order of the rows matter.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n\x0c"
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
CELL_BYTES_MAX = 64 << 20
"""As large as a row may be."""


class InputFile(NamedTuple):
    """The path and format of an input."""

    path: str
    format: str
    numbers: bool


class Input(InputFile):
    """An input that every node of a cluster can read."""

    @property
    def fed_format(self) -> str:
        """The format of the lines."""
        return "images" if self.format == "images" else "jsonl"

    def lines(self, part: dict[str, Any]) -> Iterator[bytes]:
        """The rows of a part."""
        if self.format == "jsonl":
            return self._lines(part["begin"], part["end"], part["first"])
        if self.format == "parquet":
            from jitney.offline.parquet import rows

            return (row.encode() for row in rows(self.path, part["skip"], part["count"]))
        if self.format == "images":
            return (os.path.join(self.path, name).encode() for name in part["names"])
        if part["too_long"]:
            return iter([b"null"])
        return self._records(part["begin"], part["end"], part["rows"])

    def _lines(self, begin: int, end: int, first: bool) -> Iterator[bytes]:
        """The lines that begin inside a part; the last one may end after it."""
        with open(self.path, "rb") as file:
            file.seek(begin if first else begin - 1)
            if not first:
                file.readline()
            while file.tell() < end:
                line = file.readline().rstrip(BLANK).removeprefix(BOM)
                if line:
                    yield line

    def _records(self, begin: int, end: int, rows: int) -> Iterator[bytes]:
        """The records between two bytes, at each of which a record begins."""
        with open(self.path, "rb") as file:
            file.seek(begin)
            text = file.read(end - begin).decode(errors="replace")
        found = 0
        for cells in self._reader(text):
            if cells:
                found += 1
                yield self._object(cells)
        if found != rows:
            raise ValueError(f"{self.path} has {found} records where {rows} were counted; has it changed?")

    def _object(self, cells: list[str]) -> bytes:
        if len(cells) != len(self.columns):
            return b"null"
        return json.dumps({name: self._cell(cell) for name, cell in zip(self.columns, cells)}).encode()

    def _cell(self, text: str) -> Any:
        if self.numbers and NUMBER.fullmatch(text) and math.isfinite(number := json.loads(text)):
            return number
        return text

    def _reader(self, text: str) -> Iterator[list[str]]:
        csv.field_size_limit(CELL_BYTES_MAX)
        return csv.reader(io.StringIO(text, newline=""), delimiter="\t" if self.format == "tsv" else ",")

    @cached_property
    def columns(self) -> list[str]:
        """The names in the header."""
        csv.field_size_limit(CELL_BYTES_MAX)
        with open(self.path, encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(file, delimiter="\t" if self.format == "tsv" else ",")
            return next((cells for cells in reader if cells), [])
