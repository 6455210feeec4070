"""What `jitney.infer` takes as rows, and how each is read: paths, tables, and anything that can be iterated.

A table is read a few thousand rows at a time. Its libraries are never imported for it, except pyarrow for a
table that only offers itself as Arrow. What cannot be read is refused before anything is started.
"""

from __future__ import annotations

import difflib
import inspect
import os
import sys
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jitney.call.errors import InferError
from jitney.definition.definition import Definition, Endpoint, define
from jitney.definition.expressions import form_of
from jitney.definition.hints import Param
from jitney.values.containers import container_for

CHUNK = 4096
"""Rows of a table that are read at a time."""
FORMS = "a path, a pandas or polars DataFrame, an Arrow table, or an iterable of rows"


@dataclass(frozen=True)
class RowSource:
    """Rows that can be read."""

    path: str | None = None
    """The file or folder, which the program reads itself."""
    rows: Iterator[Any] | None = None
    """The rows, if they are not in a file."""
    count: int | None = None
    """How many there are, if that is known before they are read."""
    columns: tuple[str, ...] | None = None
    """The columns of a table."""
    index: Any = None
    """The index of a pandas frame or series."""


def read_rows(given: Any) -> RowSource:
    """The rows of what the user gave; `InferError` if they are none."""
    if isinstance(given, (str, os.PathLike)):
        return _path(given)
    if isinstance(given, Mapping):
        raise InferError(f"a dictionary is one row, or columns without a table: write [row], or make it {FORMS}")
    if isinstance(given, (bytes, bytearray, memoryview)):
        raise InferError(f"bytes are no rows; rows are {FORMS}")
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and isinstance(given, pandas.DataFrame):
        return RowSource(None, _records(given), len(given), _names(given.columns), given.index)
    if pandas is not None and isinstance(given, pandas.Series):
        return RowSource(None, (_scalar(one) for one in given.tolist()), len(given), None, given.index)
    if arrow is not None and isinstance(given, (arrow.Table, arrow.RecordBatch)):
        table = given if isinstance(given, arrow.Table) else arrow.Table.from_batches([given])
        return RowSource(None, _arrow_rows(table.to_batches(CHUNK)), len(table), _names(table.column_names))
    if arrow is not None and isinstance(given, arrow.RecordBatchReader):
        return RowSource(None, _arrow_rows(given), None, _names(given.schema.names))
    if hasattr(given, "__arrow_c_stream__"):
        return _arrow_stream(given)
    if hasattr(given, "__dataframe__"):
        raise InferError(f"a {type(given).__module__}.{type(given).__name__} cannot be read; rows are {FORMS}")
    return _iterable(given)


def _path(given: str | os.PathLike[str]) -> RowSource:
    path = os.fspath(given)
    if not os.path.exists(path):
        raise InferError(
            f"there is no file or folder {path!r} with rows; if the text is a row itself, write [{path!r}]"
        )
    return RowSource(path)


def _iterable(given: Any) -> RowSource:
    if isinstance(given, AsyncIterable):
        raise InferError("asynchronous rows cannot be read; rows are an iterable: [row async for row in rows]")
    if not isinstance(given, Iterable) and not hasattr(given, "__getitem__"):
        raise InferError(f"a {type(given).__name__} is no rows; rows are {FORMS}")
    try:
        count = len(given)
    except TypeError:
        count = None
    return RowSource(None, iter(given), count)


def _arrow_stream(given: Any) -> RowSource:
    try:
        import pyarrow
    except ImportError:
        kind = f"{type(given).__module__}.{type(given).__name__}"
        raise InferError(f"a {kind} is read with pyarrow: {sys.executable} -m pip install pyarrow") from None
    reader = pyarrow.RecordBatchReader.from_stream(given)
    count = len(given) if hasattr(given, "__len__") else None
    return RowSource(None, _arrow_rows(reader), count, _names(reader.schema.names))


def _names(columns: Iterable[Any]) -> tuple[str, ...]:
    """The columns of a table; they name the arguments of a row."""
    names = tuple(columns)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise InferError(f"columns must be named by texts, which name a row's arguments; one is named {odd[0]!r}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InferError(f"there are two columns {twice[0]!r}; they name a row's arguments")
    return names


def _records(frame: Any) -> Iterator[dict[str, Any]]:
    for start in range(0, len(frame), CHUNK):
        for record in frame.iloc[start : start + CHUNK].to_dict("records"):
            yield {name: _scalar(value) for name, value in record.items()}


def _arrow_rows(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for start in range(0, len(batch), CHUNK):
            yield from batch.slice(start, CHUNK).to_pylist()


def _scalar(value: Any) -> Any:
    """A cell; what pandas calls missing is null."""
    pandas = sys.modules["pandas"]
    return None if value is pandas.NaT or value is getattr(pandas, "NA", None) else value


SCALARS = (int, float, str, bool, bytes, list)


def takes_tables(model: Any, endpoint: str | None) -> bool:
    """Whether a function takes a frame, of which every row is one."""
    params = _endpoint_of(model, endpoint)[1].params
    return any(form_of(param.hint) == "frame" for param in params)


def _endpoint_of(model: Any, endpoint: str | None) -> tuple[Definition, Endpoint]:
    definition = define(model, name=None if getattr(model, "__name__", "") != "<lambda>" else "lambda")
    try:
        return definition, definition.endpoint(endpoint or "")
    except LookupError as error:
        raise InferError(str(error.args[0])) from None


def check_columns(columns: tuple[str, ...], model: Any, endpoint: str | None) -> None:
    """Raises `InferError` if a function cannot be called with rows of these columns."""
    definition, one = _endpoint_of(model, endpoint)
    params = [param for param in one.params if not param.is_request]
    if one.shape.takes_any or (len(params) == 1 and params[0].name not in columns and _takes_rows(params[0])):
        return
    names = [param.name for param in params]
    takes = f"{definition.name} takes {', '.join(map(repr, names))}"
    for param in params:
        if param.required and param.name not in columns:
            near = difflib.get_close_matches(param.name, columns, 1)
            hint = f"rename its column {near[0]!r}" if near else f"its columns are {', '.join(map(repr, columns))}"
            raise InferError(f"the table has no column {param.name!r}, and {takes}; {hint}")
    over = [name for name in columns if name not in names]
    if over:
        chosen = [name for name in columns if name in names]
        raise InferError(f"the table has a column {over[0]!r}, but {takes}; choose its columns: table[{chosen}]")


def _takes_rows(param: Param) -> bool:
    """Whether a parameter takes a whole row: an object, a model of pydantic, a frame."""
    hint = param.hint
    if inspect.isclass(hint) and container_for(hint) is None:
        return hint not in SCALARS
    return True
