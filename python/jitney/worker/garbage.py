"""Python's garbage collector in a worker: runs that look at everything happen between batches, and pauses are measured.

A full run looks at every object that was ever made: with torch loaded it stops all threads for a sixth of a second. So
what is there after loading is frozen, which no run looks at again, and further full runs wait until the worker has
nothing to do. They do not wait for ever: what handlers leave behind is bounded, under permanent load too. The short
runs over young objects stay Python's business.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

PYTHON = "python"
"""The setting by which Python decides when full runs happen."""

NEVER = 1 << 30
"""A threshold that is not reached."""
WORTH = 2
"""Runs over the younger objects after which a full run is worth its time if nothing waits."""
OVERDUE_OBJECTS = 100_000
"""New objects after which a full run happens though batches wait: it then takes a few milliseconds."""
OVERDUE_SHARE = 0.25
"""The same as a share of those that survived the last one, so that a large cache is not walked through all the time.
Python itself waits for as many."""
BUDGET = 0.02
"""The share of the time that full runs between batches may take."""
TELL_SECONDS = 1.0
"""How often pauses are told at most."""

Pauses = dict[str, int]


class Collector:
    """The garbage collector of this process: when it makes full runs, and how long its runs have taken."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._decides = False
        self._young_runs = 0
        """Runs over younger objects since the last full one."""
        self._young_objects = 1
        """New objects that one such run looks at, at most."""
        self._survivors = 0
        """Objects that the last full run has left."""
        self._not_before = 0.0
        self._began = 0.0
        self._pauses, self._total, self._longest = 0, 0.0, 0.0
        self._told_at = 0.0
        self._untold = False

    def begin(self, way: str | None = None) -> None:
        """Called when the model is loaded and warm. A handler that has set the collector by itself keeps its way."""
        own_way = not gc.isenabled() or gc.get_threshold() != STANDARD
        if way != PYTHON and not own_way:
            gc.collect()
            gc.freeze()
            young, middle, _ = STANDARD
            self._young_objects = young * middle
            # Two runs in place of eleven: the tasks of a worker that awaits others come and go by thousands of objects,
            # none of which is garbage.
            gc.set_threshold(self._young_objects // 2, 0, NEVER)
            self._decides = True
        self._told_at = self._clock()
        gc.callbacks.append(self._measure)

    def end(self) -> None:
        """Gives the collector back, for tests that go on in this process."""
        gc.callbacks.remove(self._measure)
        if self._decides:
            gc.set_threshold(*STANDARD)
            gc.unfreeze()

    def after_batch(self, waits: Callable[[], bool]) -> None:
        """Makes a full run if it is worth its time and nothing waits, or if it cannot be put off any longer."""
        if self._young_runs < WORTH or not self._decides:
            return
        most = max(OVERDUE_OBJECTS, OVERDUE_SHARE * self._survivors)
        overdue = self._young_runs * self._young_objects >= most
        if overdue or (self._clock() >= self._not_before and not waits()):
            self._run()

    def _run(self) -> None:
        began = self._clock()
        gc.collect()
        self._survivors = len(gc.get_objects(generation=2))
        ended = self._clock()
        self._not_before = ended + (ended - began) / BUDGET

    def _measure(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector before and after each run."""
        now = self._clock()
        if phase == "start":
            self._began = now
            return
        took = now - self._began
        self._pauses += 1
        self._total += took
        self._longest = max(self._longest, took)
        self._untold = True
        self._young_runs = 0 if info["generation"] == 2 else self._young_runs + info["generation"]

    def to_tell(self) -> Pauses:
        """What TIMES says of all pauses until now; nothing if it was told a moment ago or nothing has changed."""
        if not self._untold:
            return {}
        now = self._clock()
        if now - self._told_at < TELL_SECONDS:
            return {}
        self._told_at, self._untold = now, False
        micros = {"gc_us": self._total, "gc_longest_us": self._longest}
        return {"gc_runs": self._pauses, **{name: round(1e6 * seconds) for name, seconds in micros.items()}}


STANDARD = gc.get_threshold()
"""The thresholds of a fresh Python: this module is loaded before any handler."""
