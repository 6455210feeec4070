"""Waiting for a condition with a deadline, which is the only way these tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""Generous, because the machine may be busy; a condition that holds costs nothing of it."""

POLL_SECONDS, POLL_SECONDS_MAX, POLL_SHARE = 0.005, 0.05, 0.1
"""Between two looks passes a tenth of what was waited already, since looking slows down what is waited for."""


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS, poll: float | None = None) -> T:
    """Returns the condition's first true value; fails with `what` when the deadline passes."""
    started = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - started
        if waited > seconds:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(poll or min(max(POLL_SECONDS, waited * POLL_SHARE), POLL_SECONDS_MAX))
    return value
