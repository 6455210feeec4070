"""What a server answered, as a value or as an exception."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from jitney.call.errors import RemoteError, remote_error
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
