"""What warming a model up found out; the worker tells the server when the model is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class MeasuredSize(NamedTuple):
    """What a batch of one size takes, in microseconds."""

    size: int
    prepare_us: int
    model_us: int


class MeasuredShape(NamedTuple):
    """What a batch of one size takes whose items are padded to one length, in microseconds."""

    size: int
    prepare_us: int
    model_us: int
    length: int


@dataclass
class WarmUpReport:
    """The sizes a model runs at, what they take, and what graphs cost. Empty: nothing was there to warm up."""

    sizes: list[int] = field(default_factory=list)
    """The batch sizes the model runs at; a batch is run at the next larger one. None: at any."""
    measured: list[MeasuredSize | MeasuredShape] = field(default_factory=list)
    graphs: int = 0
    """How many graphs were captured."""
    bytes: int = 0
    """The memory of the GPU that they hold."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the log, such as why there are no graphs."""
    samples: list[list[Any]] = field(default_factory=list)
    """Batches of rows, as requests bring them, that the worker then runs the whole way of a request."""
