"""`@bentoml.api`: a note on a method that makes it part of a service's API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jitney.compat.bentoml.exceptions import BentoMLConfigException
from jitney.definition.typed import plain_mark

NOTE = "__bentoml_api__"
MAX_BATCH_SIZE = 100
"""Rows in a batch unless the code says otherwise, as in BentoML."""


@dataclass(frozen=True, kw_only=True)
class ApiNote:
    """What the decorator says; a name and a route that it does not say are the method's."""

    name: str = ""
    route: str | None = None
    batchable: bool = False
    batch_dim: int | tuple[int, int] = 0
    max_batch_size: int = MAX_BATCH_SIZE
    max_latency_ms: float | None = None
    input_spec: Any = None
    output_spec: Any = None


@plain_mark(ApiNote)
def api(func: Any = None, **options: Any) -> Any:
    """Makes a method of a service an API: `POST /NAME` with a JSON object of its parameters.

    A batchable one takes rows (a list, an array, a frame) and returns as many; the rows of all callers that wait are
    run together, at most `max_batch_size` of them.
    """
    note = ApiNote(**{name: value for name, value in options.items() if value is not None})
    if note.batchable and not (isinstance(note.max_batch_size, int) and note.max_batch_size > 1):
        raise BentoMLConfigException(f"max_batch_size must be a whole number above 1, not {note.max_batch_size!r}")

    def attach(function: Any) -> Any:
        name = note.name or function.__name__
        path = name if note.route is None else note.route
        setattr(function, NOTE, replace(note, name=name, route=path if path.startswith("/") else f"/{path}"))
        return function

    return attach if func is None else attach(func)


def api_note(function: Any) -> ApiNote | None:
    """The note of a method that is an API."""
    note = getattr(function, NOTE, None)
    return note if isinstance(note, ApiNote) else None
