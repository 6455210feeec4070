"""The `jitney` program with a model that is loaded once and fed some rows at a time: what an actor of Ray runs.

It belongs to one process and is asked by one thread at a time. Its answers have the order of the rows.
"""

from __future__ import annotations

import itertools
import json
import queue
from typing import Any

from jitney.call.errors import InferError
from jitney.offline.infer import ERROR, OUTPUT, infer_lines

CHUNK = 1024
"""Rows that are written to the program at once."""
JSON_TEXTS = {b"jitney": b"JSON texts"}
"""What the field says of outputs that have no type in common."""


class FedProgram:
    """The program; it ends when it is closed, or with this process."""

    def __init__(self, model: Any, format: str = "jsonl", **flags: Any) -> None:
        self._rows: queue.Queue[bytes | None] = queue.Queue()  # It holds no more than what `outcomes` was given.
        self._answers = infer_lines(model, "-", iter(self._rows.get, None), workers=1, format=format, **flags)

    def outcomes(self, lines: list[bytes]) -> list[bytes]:
        """A line of JSON for each row: `output`, or `error` and `status`."""
        for start in range(0, len(lines), CHUNK):
            self._rows.put(b"\n".join(lines[start : start + CHUNK]) + b"\n")
        found = list(itertools.islice(self._answers, len(lines)))
        if len(found) < len(lines):
            raise InferError(f"the jitney program ended after {len(found)} of {len(lines)} rows")
        return found

    def close(self) -> None:
        """No more rows come."""
        self._rows.put(None)


def outcome_columns(outcomes: list[bytes]) -> tuple[list[Any], list[Any]]:
    """What outcomes are in a table: fields and columns, `output` and `error`, of which a row has one."""
    import pyarrow

    rows = json.loads(b"[" + b",".join(outcomes) + b"]")
    outputs = [row.get(OUTPUT) for row in rows]
    errors = pyarrow.array([row.get(ERROR) for row in rows], pyarrow.string())
    try:
        column, marks = pyarrow.array(outputs), None
    except (pyarrow.ArrowException, OverflowError):
        column, marks = json_texts(outputs), JSON_TEXTS
    fields = [pyarrow.field(OUTPUT, column.type, metadata=marks), pyarrow.field(ERROR, errors.type)]
    return fields, [column, errors]


def json_texts(outputs: list[Any]) -> Any:
    """Outputs as texts; one that is missing stays so."""
    import pyarrow

    texts = [None if one is None else json.dumps(one, ensure_ascii=False) for one in outputs]
    return pyarrow.array(texts, pyarrow.string())
