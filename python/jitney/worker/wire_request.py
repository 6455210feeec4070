"""A request as a worker has it: unread bytes, until the model asks for something."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from jitney.call.request import BULK, HTTP, INTERACTIVE, Facts, Request
from jitney.worker.headers import read_headers, read_request_id
from jitney.worker.protocol import CALL_FACTS, ITEM_META, NO_DEADLINE, Malformed

TENANT_HEADER = "x-jitney-tenant"
TENANT_WORD = b"-tenant"
TRACE_WORD = b"race"
"""What the meta of a request with a trace has in it, however the header is written."""
ORIGINS, PRIORITIES = (HTTP, "grpc", "python"), (INTERACTIVE, BULK)
"""By their numbers in the frames."""


def read_facts(meta: bytes, received: float) -> Facts:
    """Deadline, origin, tenant and priority of an item that came at the moment `received`."""
    left_ms, _, origin, priority = CALL_FACTS.unpack_from(meta, ITEM_META.size)
    # Headers are read only where one of them may be the tenant's.
    tenant = read_headers(meta).get(TENANT_HEADER) if TENANT_WORD in meta else None
    deadline = None if left_ms == NO_DEADLINE else received + left_ms / 1000
    try:
        return deadline, ORIGINS[origin], str(tenant) if tenant else None, PRIORITIES[priority]
    except IndexError:
        raise Malformed(f"no call has origin {origin} and priority {priority}") from None


def read_batch_size(meta: bytes) -> int:
    """The largest batch of an item's endpoint; 0 where it is the definition's own."""
    size: int = CALL_FACTS.unpack_from(meta, ITEM_META.size)[1]
    return size


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
        return read_headers(self._meta)

    @cached_property
    def facts(self) -> Facts:  # type: ignore[override]  # An attribute of the base, made lazy here.
        return read_facts(self._meta, self._received)

    @property
    def trace_headers(self) -> Mapping[str, Any]:
        return self.headers if TRACE_WORD in self._meta else {}
