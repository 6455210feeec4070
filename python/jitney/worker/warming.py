"""Warming up a model before it is given requests, and what is said about that in LOADED.

A handler or definition warms up in its method `warm_up(progress)`. A method of that name without a parameter
`progress` is the user's own business and is not called.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""Called after every step: how many are done, of how many, and what was done."""
FAILED_NOTE = "warming up failed, the model serves without it: "


def warm_up(entry_point: Any, progress: Progress, notes: list[str]) -> dict[str, Any]:
    """Warms the model up if it can; returns what LOADED says, these notes first. A failure is a note and no more."""
    method: Any = getattr(getattr(entry_point, "__self__", entry_point), "warm_up", None)
    report: Any = None
    if takes_progress(method):
        try:
            report = method(progress)
        except Exception as error:
            logger.warning("warming up failed", exc_info=True)
            notes = [*notes, FAILED_NOTE + f"{type(error).__name__}: {error}"]
    return described(report, notes)


def takes_progress(method: Any) -> bool:
    """Whether this is a method of the kind that is meant here."""
    try:
        return callable(method) and "progress" in inspect.signature(method).parameters
    except (TypeError, ValueError):
        return False


def described(report: Any, notes: list[str]) -> dict[str, Any]:
    """The keys of LOADED for a report of warming up; without those that have nothing to say."""
    graphs = int(getattr(report, "graphs", 0))
    about = {
        "sizes": sorted(map(int, getattr(report, "sizes", ()))),
        "measured": [list(map(round, row)) for row in getattr(report, "measured", ())],
        "graphs": {"count": graphs, "bytes": int(getattr(report, "bytes", 0))} if graphs else None,
        "notes": [*notes, *map(str, getattr(report, "notes", ()))],
    }
    return {key: value for key, value in about.items() if value}
