"""`jitney.context()`: the call that the current code works for.

It is there in sync, `async` and batch functions, and in tasks and threads (`asyncio.to_thread`) that they start. It is
made once per call of a function and reads nothing before it is asked. Calls to other parts take from it what travels
along: deadline, priority, tenant, request id and trace.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from jitney.call.request import BULK, Request

WINDOW = 64
"""Calls in a row whose least time counts; so many are needed before there is a reserve."""
SHARE = 0.9
"""How much of the least time is kept back: the next call may be a little faster than all before."""
KEYS_MAX = 1024
TIMEOUT_LEAST = 0.001


class Reserve:
    """The least time that a caller needed after the answers of one callee, learned from calls that succeeded.

    The timeout of a call is what is left of the caller's own deadline, less this reserve: an answer that came any
    later could not be passed on in time. It is the least time of all recent calls, since less must never be asked of
    a part than it may have; a caller that was ever done at once has no reserve. Pure: times come from outside.
    """

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


TRACE_HEADERS = ("traceparent", "tracestate")
STREAMS_KEPT = 64
"""From so many streams of one call on those that are over are forgotten."""


class Inherited:
    """What calls to other parts have from the requests that they are made for."""

    __slots__ = ("encoded", "expires", "headers", "is_bulk", "tenant")

    def __init__(
        self,
        expires: float | None = None,
        is_bulk: bool = False,
        tenant: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.expires = expires
        """The moment of the deadline, of `time.monotonic`."""
        self.is_bulk = is_bulk
        self.tenant = tenant
        self.headers = headers
        self.encoded: tuple[int, bytes] | None = None
        """Tenant and headers as they are sent, once they were."""


def inherit(requests: Sequence[Request]) -> Inherited:
    """Of several requests: the latest deadline, interactive if any of them is, the tenant if it is that of all."""
    if len(requests) == 1:
        request = requests[0]
        expires, _, tenant, priority = request.facts
        return Inherited(expires, priority == BULK, tenant, _trace(request))
    facts = [request.facts for request in requests]
    moments = [one[0] for one in facts if one[0] is not None]
    tenants = {one[2] for one in facts}
    return Inherited(
        max(moments) if moments and len(moments) == len(facts) else None,
        bool(facts) and all(one[3] == BULK for one in facts),
        tenants.pop() if len(tenants) == 1 else None,
    )


def _trace(request: Request) -> tuple[tuple[str, str], ...]:
    """The headers by which a request is found in logs and traces."""
    headers, request_id = request.trace_headers, request.id
    named = (("x-request-id", request_id),) if request_id and _can_be_sent(request_id) else ()
    if not headers:
        return named
    traced = [(name, str(headers[name])) for name in TRACE_HEADERS if headers.get(name)]
    return (*named, *(one for one in traced if _can_be_sent(one[1])))


def _can_be_sent(value: str) -> bool:
    return value.isascii() and value.isprintable()


class _Use:
    """The calls to one callee on behalf of one call."""

    __slots__ = ("answered_at", "failed", "pending")

    def __init__(self) -> None:
        self.pending = 0
        self.answered_at = 0.0
        self.failed = False

    def answered(self, future: Any) -> None:
        """A call is over."""
        self.pending -= 1
        if future.cancelled() or future.exception() is not None:
            self.failed = True
        else:
            self.answered_at = time.monotonic()


CURRENT: ContextVar[CallContext | None] = ContextVar("jitney_context", default=None)


class ContextSource(Protocol):
    """What the contexts of a batch's calls are made of."""

    @property
    def model(self) -> str:
        """The name of the model."""

    @property
    def reserves(self) -> Reserves | None:
        """What was learned about calls to other parts; None where nothing is."""

    def request_at(self, position: int) -> Request:
        """The request of the item at this position."""


class CallContext:
    """The current call of an endpoint: one request, or those of a batch."""

    def __init__(self, source: ContextSource, endpoint: str, is_async: bool, positions: Sequence[int]) -> None:
        self.endpoint = endpoint
        """The name of the endpoint."""
        self.is_async = is_async
        self._source = source
        self._positions = positions
        self._requests: list[Request] | None = None
        self._inherited: Inherited | None = None
        self._uses: dict[str, _Use] | None = None
        self._streams: list[Any] | None = None

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._source.model

    @property
    def requests(self) -> list[Request]:
        """The request of each item of this call."""
        found = self._requests
        if found is None:
            found = self._requests = list(map(self._source.request_at, self._positions))
        return found

    @property
    def request(self) -> Request:
        """The only request of this call."""
        if len(self.requests) != 1:
            raise RuntimeError(f"this call has {len(self.requests)} requests; see jitney.context().requests")
        return self.requests[0]

    def __repr__(self) -> str:
        return f"<jitney.context {self.model}/{self.endpoint}>"

    # -- for calls to other parts ---------------------------------------------------------------

    @property
    def inherited(self) -> Inherited:
        """What travels along with calls for all requests."""
        return self._inherited or self._inherit()

    def _inherit(self) -> Inherited:
        self._inherited = inherited = inherit(self.requests)
        return inherited

    def timeout(self, inherited: Inherited, callee: str, now: float) -> float | None:
        """Seconds that a call may take."""
        if inherited.expires is None:
            return None
        reserves = self._source.reserves
        reserve = None if reserves is None else reserves.of(self.endpoint, callee)
        return timeout_of(inherited.expires, now, 0.0 if reserve is None else reserve.seconds)

    def watch(self, callee: str, future: Any) -> None:
        """Learns from a call that has a deadline."""
        uses = self._uses
        if uses is None:
            uses = self._uses = {}
        use = uses.get(callee)
        if use is None:
            use = uses[callee] = _Use()
        use.pending += 1
        future.add_done_callback(use.answered)

    def keep(self, stream: Any) -> None:
        """A stream that ends with this call."""
        open_ones = self._streams or []
        if len(open_ones) >= STREAMS_KEPT:
            open_ones = [one for one in open_ones if not one.is_over]
        self._streams = [*open_ones, stream]

    def __enter__(self) -> CallContext:
        """The function is about to be called."""
        CURRENT.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """The function has returned. What it leaves running has the context still, but not the code after it."""
        CURRENT.set(None)
        if self._streams is not None or self._uses is not None:
            self._end(kind is None)

    def _end(self, succeeded: bool) -> None:
        for stream in self._streams or ():
            stream.cancel()
        self._streams = None
        reserves = self._source.reserves
        if self._uses is None or reserves is None or not succeeded:
            return
        now = time.monotonic()
        for callee, use in self._uses.items():
            reserve = reserves.of(self.endpoint, callee)
            if reserve is not None and not use.failed:
                reserve.observe(0.0 if use.pending else now - use.answered_at)
        self._uses = None


def context() -> CallContext:
    """The call that the current code works for."""
    current = CURRENT.get()
    if current is None:
        raise RuntimeError("there is no call: jitney.context() is for code that an endpoint runs")
    return current


def multiplexed_model_id() -> str:
    """The model that the requests of this call ask for, empty if they ask for none (`@jitney.multiplexed`)."""
    ids = {request.multiplexed_model_id for request in context().requests}
    if len(ids) > 1:
        raise RuntimeError(
            "the requests of this call ask for several models; the server sends batches for one at a time"
        )
    return ids.pop()
