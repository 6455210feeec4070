"""When a client asks again: if the server says when, or could not be reached at all.

A refusal with Retry-After was made before the model ran, so request_value again repeats nothing. After a
connection that broke in the middle nobody knows, so only requests that may be repeated are.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from jitney.client.replies import Reply
from jitney.client.requests import Request

RETRIABLE = (429, 503)
FIRST_PAUSE = 0.1


class Unreachable(ConnectionError):
    """No connection came to be: nothing was sent."""


@dataclass(frozen=True)
class Retry:
    """How often and how patiently."""

    attempts: int = 4
    """Tries in all; 1 never asks again."""
    longest: float = 30.0
    """The longest pause in seconds; a server that asks for more is not asked again."""

    def after_reply(self, reply: Reply, attempt: int) -> float | None:
        """How long to wait after this answer; None if it stands."""
        asked = reply.retry_after
        if reply.status not in RETRIABLE or asked is None or attempt >= self.attempts or asked > self.longest:
            return None
        return asked + random.uniform(0, 0.1 * asked)  # So that those who were refused together come apart.

    def after_error(self, request: Request, error: OSError, attempt: int) -> float | None:
        """How long to wait after no answer; None if that is it."""
        may = request.idempotent or isinstance(error, Unreachable)
        if not may or attempt >= self.attempts:
            return None
        pause: float = min(FIRST_PAUSE * 2 ** (attempt - 1), self.longest)
        return pause
