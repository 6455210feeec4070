"""The folder that a job over Parquet files writes: a file of answers for each part, and what is noted of them.

A part is done when its note is there, which is written after its answers. A part that is run once more, because its
actor or the whole job was lost in between, writes the same file again: no row is there twice. `_SUCCESS` says that
all parts are there; the notes are removed then.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from jitney.call.errors import InferError
from jitney.files.tables import open_parquet
from jitney.offline.fed_program import JSON_TEXTS, json_texts
from jitney.offline.infer import OUTPUT
from jitney.offline.location import WORK, Location

COMPLETE = "_SUCCESS"
JOB = f"{WORK}/job.json"
NOTES_AT_ONCE = 16


class PartNote(NamedTuple):
    """What is noted of a part that is done."""

    rows: int
    failed: int
    field: str
    """The type of its outputs: a schema of Arrow's with this one field, as text."""


class AnswerFolder:
    """The output of a job; `job` is what tells it from others."""

    def __init__(self, location: Location, job: dict[str, Any]) -> None:
        self.location = location
        self._job = job
        self._notes = f"{WORK}/{hashlib.sha256(_text(job)).hexdigest()[:16]}"

    def open(self, overwrite: bool) -> dict[int, PartNote] | None:
        """The parts that are done, by their numbers; None if all are."""
        if overwrite and self._job_there() is not None:
            self.location.clear()
        there = self._job_there()
        if there is None and self.location.files():
            raise InferError(f"{self.location.url} holds files that are of no job; name an empty folder as the output")
        if there is not None and (difference := _difference(self._job, there)):
            raise InferError(
                f"{self.location.url} is the output of another job: {difference}; --overwrite removes it and begins"
            )
        if self.location.read(COMPLETE) is not None:
            self._remove_notes()
            return None
        self.location.write(JOB, _text({"job": self._job}))
        paths = [file.path for file in self.location.files(self._notes)]
        with ThreadPoolExecutor(NOTES_AT_ONCE) as pool:
            notes = zip(paths, pool.map(self.location.read, paths))
            return {int(path.rpartition("/")[2]): PartNote(*json.loads(note)) for path, note in notes if note}

    def _job_there(self) -> dict[str, Any] | None:
        """The job whose output is there, complete or not."""
        found = self.location.read(COMPLETE) or self.location.read(JOB)
        try:
            job = json.loads(found or b"null")["job"]
        except (ValueError, TypeError, KeyError):  # It is another program's.
            return None
        return job if isinstance(job, dict) else None

    def write(self, number: int, name: str, table: Any, failed: int) -> PartNote:
        """Writes the answers of a part, then its note."""
        import pyarrow.parquet

        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table, sink)
        self.location.write(name, sink.getvalue())
        note = PartNote(len(table), failed, _encoded(table.schema.field(OUTPUT)))
        self.location.write(f"{self._notes}/{number:08}", json.dumps(note).encode())
        return note

    def rewrite(self, number: int, name: str, note: PartNote, field: str) -> PartNote:
        """Writes a part again, with outputs of the type that all parts have in common."""
        import pyarrow

        with self.location.open(name) as opened, open_parquet(opened) as source:
            table = source.read()
        place, wanted = table.schema.get_field_index(OUTPUT), _decoded(field)
        values, were = table.column(place).to_pylist(), table.schema.field(place)
        if wanted.metadata == JSON_TEXTS:
            column = table.column(place) if were.metadata == JSON_TEXTS else json_texts(values)
        else:
            try:
                column = pyarrow.array(values, wanted.type)
            except pyarrow.ArrowException:  # Whole numbers that no fraction is near enough to.
                column = table.column(place).cast(wanted.type, safe=False)
        return self.write(number, name, table.set_column(place, wanted, column), note.failed)

    def finish(self, notes: Iterable[PartNote]) -> None:
        """Says that all is there."""
        notes = list(notes)
        counts = {"rows": sum(note.rows for note in notes), "failed": sum(note.failed for note in notes)}
        self.location.write(COMPLETE, _text({"job": self._job, **counts}))
        self._remove_notes()

    def _remove_notes(self) -> None:
        if self.location.files(WORK):
            self.location.clear(WORK)


def common_field(notes: Iterable[PartNote]) -> str:
    """The type that all outputs fit into: one that is wider than each, else JSON texts."""
    import pyarrow

    fields = [_decoded(one) for one in sorted({note.field for note in notes})]
    texts = pyarrow.field(OUTPUT, pyarrow.string(), metadata=JSON_TEXTS)
    if any(field.metadata == JSON_TEXTS for field in fields):
        return _encoded(texts)
    try:
        schemas = [pyarrow.schema([field]) for field in fields]
        return _encoded(pyarrow.unify_schemas(schemas, promote_options="permissive").field(OUTPUT))
    except pyarrow.ArrowException:
        return _encoded(texts)


def _encoded(field: Any) -> str:
    import pyarrow

    return base64.b64encode(pyarrow.schema([field]).serialize()).decode()


def _decoded(text: str) -> Any:
    import pyarrow

    return pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(text))).field(OUTPUT)


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _difference(now: dict[str, Any], then: dict[str, Any]) -> str | None:
    for name in sorted({*now, *then}):
        if now.get(name) != then.get(name):
            if name == "input":
                return "the input has changed"
            return f"{name} was {then.get(name)!r}, now it is {now.get(name)!r}"
    return None
