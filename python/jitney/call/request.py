"""What a model can read about one item's request, and set about its answer.

A function gets it by annotating a parameter with `jitney.Request` (`list[jitney.Request]` in a
batch), or by `jitney.context()`. It belongs to one item: nothing in it is ever another request's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

HTTP, INTERACTIVE, BULK = "http", "interactive", "bulk"
MODEL_ID_HEADER = "serve_multiplexed_model_id"
MODEL_ID_HEADERS = (MODEL_ID_HEADER, MODEL_ID_HEADER.replace("_", "-"))
"""Where a request says which model it asks for, of those that its worker loads: Ray's name, and the same for proxies
that let no underscores through."""
SEQUENCE_HEADER = "ts_request_sequence"
"""How the names of the headers begin in which the server tells of sequences."""

Facts = tuple[float | None, str, str | None, str]


class Request:
    """One item's request."""

    status: int | None = None
    """Set it to answer with another status than 200."""

    def __init__(
        self,
        id: str = "",
        headers: Mapping[str, Any] | None = None,
        endpoint: str = "",
        *,
        deadline: float | None = None,
        origin: str = HTTP,
        tenant: str | None = None,
        priority: str = INTERACTIVE,
    ) -> None:
        self._id = id
        self._headers = headers or {}
        self.endpoint = endpoint
        """The endpoint that was called."""
        self.facts: Facts = (None if deadline is None else time.monotonic() + deadline, origin, tenant, priority)
        """The moment of its deadline (of `time.monotonic`), its origin, tenant and priority."""

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

    @property
    def multiplexed_model_id(self) -> str:
        """The model that it asks for, of those that its worker loads (`@jitney.multiplexed`); empty if it asks for
        none."""
        return next((str(self.headers[name]) for name in MODEL_ID_HEADERS if name in self.headers), "")

    @property
    def sequence_id(self) -> str:
        """The sequence that it belongs to, where the model keeps sequences (`max_sequences`); empty otherwise."""
        return str(self.headers.get(f"{SEQUENCE_HEADER}_id", ""))

    @property
    def starts_sequence(self) -> bool:
        """Whether it begins its sequence: its client said so, or named none and was given a new one."""
        return bool(self.headers.get(f"{SEQUENCE_HEADER}_start") == "true")

    @property
    def ends_sequence(self) -> bool:
        """Whether its client said that it is the last one of its sequence."""
        return bool(self.headers.get(f"{SEQUENCE_HEADER}_end") == "true")

    @property
    def trace_headers(self) -> Mapping[str, Any]:
        """Headers among which are those of its trace, if it has one."""
        return self.headers

    @property
    def deadline(self) -> float | None:
        """Seconds that are left for the answer, below 0 when it is too late; None if there is no deadline."""
        expires = self.facts[0]
        return None if expires is None else expires - time.monotonic()

    @property
    def origin(self) -> str:
        """Where it came from: "http", "grpc" or "python" (a handle, also that of another model)."""
        return self.facts[1]

    @property
    def tenant(self) -> str | None:
        """The tenant that the caller named, if any."""
        return self.facts[2]

    @property
    def priority(self) -> str:
        """ "interactive" or "bulk"."""
        return self.facts[3]

    def __repr__(self) -> str:
        return f"Request({self.id!r})"
