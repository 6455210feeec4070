"""Waiting for a condition with a deadline, which is the only way these tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""Generous, because the machine may be busy; a condition that holds costs nothing of it."""

POLL_SECONDS = 0.005


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS, poll: float = POLL_SECONDS) -> T:
    """Returns the condition's first true value; fails with `what` when the deadline passes."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(poll)
    return value
