"""When a client tries again: if the server sends Retry-After, or could not be reached at all.

A rejection with Retry-After was made before the model ran, so trying again repeats nothing. After a
connection that broke in the middle it is unknown whether the model ran, so only idempotent requests
are repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from jitney.client.replies import Reply
from jitney.client.requests import ClientRequest

RETRIABLE = (429, 503)
FIRST_PAUSE = 0.1


class Unreachable(ConnectionError):
    """No connection could be made: nothing was sent."""


@dataclass(frozen=True)
class Retry:
    """How often to try, and how long to wait."""

    attempts: int = 4
    """Tries in all; 1 never tries again."""
    longest: float = 30.0
    """The longest pause in seconds; there is no retry if the server wants a longer one."""

    def after_reply(self, reply: Reply, attempt: int) -> float | None:
        """How long to wait before trying again after this answer; None if there is no retry."""
        delay = reply.retry_after
        if reply.status not in RETRIABLE or delay is None or attempt >= self.attempts or delay > self.longest:
            return None
        return delay + random.uniform(0, 0.1 * delay)  # So that clients do not all come back at once.

    def after_error(self, request: ClientRequest, error: OSError, attempt: int) -> float | None:
        """How long to wait before trying again without an answer; None if there is no retry."""
        may = request.idempotent or isinstance(error, Unreachable)
        if not may or attempt >= self.attempts:
            return None
        pause: float = min(FIRST_PAUSE * 2 ** (attempt - 1), self.longest)
        return pause
