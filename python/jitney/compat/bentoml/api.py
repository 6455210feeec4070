"""`@bentoml.api`: a note on a method that makes it part of a service's API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from jitney.compat.bentoml.exceptions import BentoMLConfigException

F = TypeVar("F", bound=Callable[..., Any])

NOTE = "__bentoml_api__"
MAX_BATCH_SIZE = 100
"""Rows in a batch unless the code says otherwise, as in BentoML."""


@dataclass(frozen=True)
class ApiNote:
    """What the decorator says."""

    name: str
    route: str
    batchable: bool = False
    batch_dim: int | tuple[int, int] = 0
    max_batch_size: int = MAX_BATCH_SIZE
    max_latency_ms: float | None = None
    input_spec: Any = None
    output_spec: Any = None
    doc: str | None = None


@overload
def api(func: F) -> F: ...


@overload
def api(
    *,
    route: str | None = None,
    name: str | None = None,
    input_spec: Any = None,
    output_spec: Any = None,
    batchable: bool = False,
    batch_dim: int | tuple[int, int] = 0,
    max_batch_size: int = MAX_BATCH_SIZE,
    max_latency_ms: float | None = None,
) -> Callable[[F], F]: ...


def api(
    func: Any = None,
    *,
    route: str | None = None,
    name: str | None = None,
    input_spec: Any = None,
    output_spec: Any = None,
    batchable: bool = False,
    batch_dim: int | tuple[int, int] = 0,
    max_batch_size: int = MAX_BATCH_SIZE,
    max_latency_ms: float | None = None,
) -> Any:
    """Makes a method of a service an API: `POST /NAME` with a JSON object of its parameters.

    A batchable one takes rows (a list, an array, a frame) and returns as many; the rows of all callers that wait are
    run together, at most `max_batch_size` of them.
    """
    if batchable and not (isinstance(max_batch_size, int) and max_batch_size > 1):
        raise BentoMLConfigException(f"max_batch_size must be a whole number above 1, not {max_batch_size!r}")

    def attach(function: F) -> F:
        own = name or function.__name__
        path = route if route is not None else f"/{own}"
        note = ApiNote(
            own,
            path if path.startswith("/") else f"/{path}",
            batchable,
            batch_dim,
            max_batch_size,
            max_latency_ms,
            input_spec,
            output_spec,
            function.__doc__,
        )
        setattr(function, NOTE, note)
        return function

    return attach if func is None else attach(func)


def api_note(function: Any) -> ApiNote | None:
    """The note of a method that is an API."""
    note = getattr(function, NOTE, None)
    return note if isinstance(note, ApiNote) else None
