"""What a model can read about one item's request, and set about its answer.

A function gets it by annotating a parameter with `jitney.Request` (`list[jitney.Request]` in a
batch). It belongs to one item: nothing in it is ever another request's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any


class Request:
    """One item's request."""

    status: int | None = None
    """Set it to answer with another status than 200."""

    def __init__(self, id: str = "", headers: Mapping[str, Any] | None = None, endpoint: str = "") -> None:
        self._id = id
        self._headers = headers or {}
        self.endpoint = endpoint
        """The endpoint that was called."""

    @cached_property
    def response_headers(self) -> dict[str, str]:
        """Headers of the answer; in a stream they are sent with the first piece."""
        return {}

    @property
    def is_untouched(self) -> bool:
        """Whether neither status nor headers were set."""
        return self.status is None and "response_headers" not in self.__dict__

    @property
    def id(self) -> str:
        """The server's own id of the request, as the client sees it in `x-request-id`."""
        return self._id

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers the client sent; names are found in any case."""
        return self._headers

    def __repr__(self) -> str:
        return f"Request({self.id!r})"
