"""A stand-in for a GPU that records calls, for tests of what is built around it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from jitney.gpu.capture import Capture, Captured
from jitney.gpu.trees import rebuilt


class ReplayedCalls(Capture):
    """Stands in for a GPU: a recorded call is made again, and its results copied to where the first ones were."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0
        self.lock = threading.Lock()

    def warm(self, call: Callable[[], Any], runs: int = 1) -> Any:
        """Makes the call once."""
        return call()

    def record(self, call: Callable[[], Any]) -> Captured:
        """Remembers the call."""
        outputs = rebuilt(call(), lambda tensor: tensor.clone())
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            fresh: list[Any] = []
            rebuilt(call(), lambda tensor: fresh.append(tensor) or tensor)
            rebuilt(outputs, lambda tensor: tensor.copy_(fresh.pop(0)))

        return Captured(replay, outputs)

    def running(self) -> AbstractContextManager[Any]:
        """One at a time."""
        return self.lock

    def microseconds(self, call: Callable[[], Any]) -> int:
        """Makes the call; it takes no time that anybody could rely on."""
        call()
        return 1

    def memory(self) -> int:
        """There is none to speak of."""
        return 0
