"""A line that says how far a job is: on a terminal, and in the output of a notebook's cell.

It is written again over itself, a few times a second at most, and only by whoever counts.
"""

from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import TextIO

from jitney.machine.process import is_interactive

EVERY_SECONDS = 0.1
WIDTH = 24


class ProgressBar:
    """Counts rows; use it in a `with`."""

    def __init__(
        self, total: int | None, shown: bool | None = None, out: TextIO | None = None, before: int = 0
    ) -> None:
        """`total` is None where it is not known; `shown` is None to show it only to somebody who can see it.

        Rows that were done `before` count for how far it is, and not for the rate.
        """
        self._out = out or sys.stderr
        self._shown = (is_interactive() or _is_terminal(self._out)) if shown is None else shown
        self._total = total
        self._done = self._before = before
        self._failed = 0
        self._width = 0
        self._begun = self._written = time.monotonic()

    @property
    def shown(self) -> bool:
        """Whether somebody sees it."""
        return self._shown

    def count(self, failed: int, rows: int = 1) -> None:
        """More rows are done, some of which failed."""
        self._done += rows
        self._failed += failed
        if self._shown and time.monotonic() - self._written >= EVERY_SECONDS:
            self._write()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write()
            self._print("\n")

    def line(self) -> str:
        """How far it is."""
        seconds = max(time.monotonic() - self._begun, 1e-9)
        rate = (self._done - self._before) / seconds
        words = [f"{self._done:,} rows"]
        if self._total:
            share = min(self._done / self._total, 1.0)
            bar = "█" * round(share * WIDTH)
            words = [f"{share:4.0%} |{bar:<{WIDTH}}| {self._done:,} of {self._total:,} rows"]
        words.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        if self._failed:
            words.append(f"{self._failed:,} failed")
        if self._total and rate and self._done < self._total:
            words.append(f"{_clock((self._total - self._done) / rate)} left")
        else:
            words.append(_clock(seconds))
        return ", ".join(words)

    def _write(self) -> None:
        self._written = time.monotonic()
        line = self.line()
        self._print(f"\r{line:<{self._width}}")
        self._width = len(line)

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # Nobody reads it any more.
            self._out.write(text)
            self._out.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _is_terminal(out: TextIO) -> bool:
    try:
        return out.isatty()
    except (AttributeError, ValueError):
        return False
