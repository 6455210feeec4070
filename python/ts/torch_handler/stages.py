"""A batch between two stages of a handler: prepared, or given to the model."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from ts.utils.util import PredictionException


class Prepared(NamedTuple):
    """What `begin` hands to `launch`."""

    rows: list[Any]
    """The rows that could be prepared, in order."""
    batch: Any
    """What `preprocess` made of them; None if there are none."""
    failures: dict[int, PredictionException]
    """Why the others could not be, by their place in the batch."""
    seconds: float
    """How long preparing took."""
    ready: Any = None
    """On a GPU the mark after which the batch is there."""

    def wait(self) -> None:
        """Returns when the batch is there."""
        if self.ready is not None:
            self.ready.synchronize()


class Launched(NamedTuple):
    """What `launch` hands to `finish`."""

    prepared: Prepared
    """Kept until the answer is made: the GPU may still read the batch."""
    started: bool
    """Whether the model was given the batch; else `finish` does that too."""
    outputs: Any = None
    seconds: float = 0.0
    """How long it took to start the model; where there is no GPU, to run it."""
    done: Any = None
    """On a GPU the mark after which the outputs are there; None where they are there already."""
    began: Any = None
    """On a GPU the mark at which the model took the batch."""

    def wait(self) -> tuple[float, float] | None:
        """Returns when the outputs are there. On a GPU it says how many seconds before that the batch was prepared, and
        how many the model had it."""
        if self.done is None:
            return None
        self.done.synchronize()
        if self.began is None or self.prepared.ready is None:
            return None
        return self.prepared.ready.elapsed_time(self.done) / 1000, self.began.elapsed_time(self.done) / 1000


def merge(outputs: Any, failures: dict[int, PredictionException]) -> Any:
    """Puts the failures back at their places among the outputs."""
    if not failures or not isinstance(outputs, list):
        return outputs
    good = iter(outputs)
    return [failures[place] if place in failures else next(good, None) for place in range(len(outputs) + len(failures))]


def asks(context: Any, what: str) -> bool:
    """Whether the server marked the batch as a request to describe or to explain."""
    try:
        return bool(context.get_request_header(0, what) == "True")
    except (AttributeError, IndexError):  # A context of a user's test, or one that is bound to no batch.
        return False


def milliseconds(seconds: float) -> float:
    """A duration as metrics give it."""
    return round(seconds * 1000, 2)


now = time.perf_counter
