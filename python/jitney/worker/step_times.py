"""How long a batch was prepared and how long it was in the model, for the server's decisions.

Waiting for the batch before is not counted: a batch that is given earlier takes no longer for it.
"""

from __future__ import annotations

import time
from typing import Any

from jitney.worker.protocol import HEADER, TIMES

now = time.perf_counter


class StepTimes:
    """When a batch had come so far."""

    __slots__ = ("began", "model_seconds", "outputs", "prepared")

    def __init__(self, began: float) -> None:
        self.began = began
        """The first bytes of its frame were there."""
        self.prepared = began
        self.outputs: float | None = None
        self.model_seconds: float | None = None
        """How long the model had it, where the device has measured that."""

    def got_outputs(self, at: float, measured: Any = None) -> None:
        """The outputs were there. `measured` is what the device knows: how long before that the batch was prepared,
        and how long the model had it."""
        self.outputs = at
        if measured is not None:
            before, self.model_seconds = measured
            self.prepared = at - before

    def follow(self, other: StepTimes) -> None:
        """Makes another batch the last one; one that failed has not left the model any later."""
        self.prepared = other.prepared
        self.outputs = other.outputs or self.outputs

    def told(self, last: StepTimes) -> dict[str, int]:
        """The keys of TIMES, after the batch before this one; none for a batch that failed on its way."""
        if self.outputs is None:
            return {}
        model = self.model_seconds
        if model is None:
            model = self.outputs - max(self.prepared, last.outputs or 0.0)
        prepare = self.prepared - max(self.began, last.prepared)
        return {"prepare_us": microseconds(prepare), "model_us": microseconds(model)}


def microseconds(seconds: float) -> int:
    """A duration as the server is told it."""
    return max(0, round(seconds * 1e6))


def times_frame(batch_id: int, times: dict[str, int]) -> bytes:
    """A whole TIMES frame; nothing if there is nothing to tell."""
    if not times:
        return b""
    payload = b"{%s}" % ",".join([f'"{key}":{value}' for key, value in times.items()]).encode()
    return HEADER.pack(len(payload), TIMES, 0, 0, batch_id) + payload
