"""How long a caller still needs after a part has answered it, learned from calls that succeeded.

The timeout of a call is what is left of the caller's own deadline, less this reserve: an answer that came any later
could not be passed on in time. It is the least time of all recent calls, since less must never be asked of a part than
it may have; a caller that was ever done at once has no reserve. Pure: times come from outside.
"""

from __future__ import annotations

import math

WINDOW = 64
"""Calls in a row whose least time counts; so many are needed before there is a reserve."""
SHARE = 0.9
"""How much of the least time is kept back: the next call may be a little faster than all before."""
KEYS_MAX = 1024
TIMEOUT_LEAST = 0.001


class Reserve:
    """The least time that a caller needed after the answers of one callee."""

    def __init__(self) -> None:
        self._least = self._before = math.inf
        self._count = 0

    def observe(self, seconds: float) -> None:
        """A caller was done so long after the last answer."""
        self._least = min(self._least, seconds)
        self._count += 1
        if self._count == WINDOW:
            self._before, self._least, self._count = self._least, math.inf, 0

    @property
    def seconds(self) -> float:
        """What to keep back; 0 as long as too little is known."""
        least = min(self._before, self._least)
        return 0.0 if self._before == math.inf else SHARE * max(least, 0.0)


class Reserves:
    """The reserves of a worker, by the caller's endpoint and the callee."""

    def __init__(self) -> None:
        self._reserves: dict[tuple[str, str], Reserve] = {}

    def of(self, caller: str, callee: str) -> Reserve | None:
        """What is known of the two; None if there are too many already."""
        key = (caller, callee)
        found = self._reserves.get(key)
        if found is None and len(self._reserves) < KEYS_MAX:
            found = self._reserves[key] = Reserve()
        return found


def timeout_of(expires: float, now: float, reserve: float) -> float:
    """Seconds that a callee has; never none at all, so that the server is the one to say that it is too late."""
    return max(expires - now - reserve, TIMEOUT_LEAST)
