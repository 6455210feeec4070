"""What a server answered, and when a client tries again: after Retry-After, or if no server could be reached.

A rejection with Retry-After was made before the model ran, so trying again repeats nothing. After a
connection that broke in the middle it is unknown whether the model ran, so only idempotent requests
are repeated.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jitney.call.errors import RemoteError, remote_error
from jitney.client.requests import ClientRequest
from jitney.wire.calls import read_body


class Reply(NamedTuple):
    """One HTTP answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def value(self) -> Any:
        """The body decoded by its content type; raises the error of a failure."""
        if self.status >= 400:
            raise self.error()
        return read_body(self.body, self.headers.get("content-type", ""))

    def error(self) -> RemoteError:
        """A failure with the server's message."""
        kind, message = "", self.body.decode("utf-8", "replace")
        try:
            error = json.loads(self.body)
            kind, message = str(error["type"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            pass
        return remote_error(self.status, kind, message or f"status {self.status}", self.retry_after)

    @property
    def retry_after(self) -> float | None:
        """The server's Retry-After in seconds, if it sent one."""
        try:
            return max(0.0, float(self.headers["retry-after"]))
        except (KeyError, ValueError):
            return None


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
