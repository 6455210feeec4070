"""A request as a worker has it: unread bytes, until the model asks for something."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from jitney.call.request import BULK, HTTP, INTERACTIVE, Facts, Request
from jitney.worker.headers import read_headers, read_request_id

DEADLINE_HEADER, ORIGIN_HEADER, PRIORITY_HEADER = "jitney deadline", "jitney origin", "jitney priority"
"""What the server says about a request; clients cannot send names with a space."""
TENANT_HEADER = "x-jitney-tenant"
FACT_WORDS = (b"jitney deadline", b"jitney origin", b"jitney priority", b"-tenant")
TRACE_WORD = b"race"
"""What the meta of a request with a trace has in it, however the header is written."""
NOTHING_SPECIAL: Facts = (None, HTTP, None, INTERACTIVE)


def read_facts(meta: bytes, received: float, headers: Mapping[str, Any] | None = None) -> Facts:
    """Deadline, origin, tenant and priority of an item that came at the moment `received`."""
    if not any(one in meta for one in FACT_WORDS):  # Most requests over HTTP have none of them.
        return NOTHING_SPECIAL
    told = read_headers(meta) if headers is None else headers
    left, tenant = told.get(DEADLINE_HEADER), told.get(TENANT_HEADER)
    return (
        None if left is None else received + float(left) / 1000,
        told.get(ORIGIN_HEADER, HTTP),
        str(tenant) if tenant else None,
        BULK if told.get(PRIORITY_HEADER) == BULK else INTERACTIVE,
    )


class WireRequest(Request):
    """A request whose id and headers stay unread until the model asks for them."""

    def __init__(self, meta: bytes, endpoint: str, received: float) -> None:
        self._meta = meta
        self.endpoint = endpoint
        self._received = received

    @property
    def id(self) -> str:
        return read_request_id(self._meta)

    @cached_property
    def headers(self) -> Any:
        headers = read_headers(self._meta)
        for name in (DEADLINE_HEADER, ORIGIN_HEADER, PRIORITY_HEADER):
            headers.pop(name, None)  # They are not the client's.
        return headers

    @cached_property
    def facts(self) -> Facts:  # type: ignore[override]  # An attribute of the base, made lazy here.
        return read_facts(self._meta, self._received)

    @property
    def trace_headers(self) -> Mapping[str, Any]:
        return self.headers if TRACE_WORD in self._meta else {}
