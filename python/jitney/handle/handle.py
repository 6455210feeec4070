"""A model as an object: `handle.remote(x)` calls it and returns at once.

A handle holds no connection and no state, so it can be kept, shared between threads and loops, and
made anew for nothing. `handle.method` is another endpoint of the same model; the few names that the
handle itself has are reached by `handle.options(method_name="...")`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, overload

from jitney.call.context import Inherited, inherit, timeout_of
from jitney.call.request import BULK, MODEL_ID_HEADER, Request
from jitney.client.requests import ClientRequest, call, predict_path
from jitney.definition.decorators import P, R
from jitney.handle.connections import Connection, Connections, ResultReceiver
from jitney.handle.frames import call_head
from jitney.handle.job import Job
from jitney.handle.streams import AsyncCall, AsyncStream, Call, Stream
from jitney.wire.calls import CallOptions, encode_call
from jitney.wire.values import encode_one

if TYPE_CHECKING:
    from typing_extensions import Unpack

S = TypeVar("S", bound=ResultReceiver)
L = TypeVar("L", bound=ResultReceiver)

ENCODINGS = {"value": "", "json": "application/json", "bytes": "application/octet-stream"}


class OptionsOfCalls(TypedDict, total=False):
    """What `Handle.options` takes besides another endpoint."""

    timeout: float | None
    priority: str | None
    tenant: str | None
    cost: int | None
    headers: Mapping[str, str] | None
    multiplexed_model_id: str | None
    request: Request | None


class Handle(Generic[P, R]):
    """One endpoint of a model on a server. To type checkers `Handle[[str, int], float]` is one that is called with a
    text and a number and answers with a float."""

    def __init__(
        self,
        connections: Connections,
        model: str,
        version: str = "",
        endpoint: str = "",
        *,
        encoding: str = "value",
        options: CallOptions | None = None,
        endpoints: Mapping[str, str] | None = None,
    ) -> None:
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, not {encoding!r}")
        self._connections = connections
        self._names = (model, version, endpoint)
        self._encoding, self._options = encoding, options or CallOptions()
        self._endpoints = endpoints or {}
        """The model's endpoints, if they are known, and how each is called."""
        self._head = call_head(model, version, endpoint, ENCODINGS[encoding], self._options)

    def remote(self, *arguments: P.args, **keywords: P.kwargs) -> AsyncCall[R] | Call[R]:
        """Calls the model with one item's arguments, and returns a future of its answer at once."""
        return self._send(self._loop(), Call, AsyncCall, self._head, self._body(arguments, keywords))

    def stream(self, *arguments: P.args, **keywords: P.kwargs) -> AsyncStream | Stream:
        """Calls a model that streams; the answer's pieces are there as soon as they are made."""
        return self._send(self._loop(), Stream, AsyncStream, self._head, self._body(arguments, keywords))

    def submit(self, *arguments: P.args, **keywords: P.kwargs) -> Job[R]:
        """Asks for the answer later, and returns a job at once. From then on it survives crashes of the server and
        of this program. It waits for the server to keep it; inside an event loop use `jitney.AsyncClient.submit`.
        """
        if self._loop() is not None:
            raise TypeError("inside an event loop write `await jitney.AsyncClient(url).submit(model, ...)`")
        client, body = self._connections.client(), self._body(arguments, keywords)
        path = predict_path(*self._names)
        if self._encoding == "value":
            request = call(path, body, self._options)
        else:
            headers = {"Content-Type": ENCODINGS[self._encoding], **self._options.headers}
            request = ClientRequest("POST", path, headers, body)
        return Job(client, client.submit_request(request))

    @overload
    def options(self, *, method_name: None = None, **options: Unpack[OptionsOfCalls]) -> Handle[P, R]: ...
    @overload
    def options(self, *, method_name: str, **options: Unpack[OptionsOfCalls]) -> Handle[..., Any]: ...
    def options(
        self,
        *,
        timeout: float | None = None,
        priority: str | None = None,
        tenant: str | None = None,
        cost: int | None = None,
        headers: Mapping[str, str] | None = None,
        multiplexed_model_id: str | None = None,
        method_name: str | None = None,
        request: Request | None = None,
    ) -> Handle[..., Any]:
        """The same handle with other options; those left out stay as they are.

        `timeout` is the deadline, in seconds from the call's arrival. A `priority` of "bulk" uses
        free capacity only. `tenant` is the name of the caller's tenant: tenants take turns. `cost` is the
        cost of a call, where the model's batches are limited by that. `headers` go to the server and the
        model as over HTTP, for example `x-request-id` and `traceparent`. `multiplexed_model_id` is
        the model that the calls ask for, of those that their worker loads. `method_name` is another endpoint.
        `request` is the one for which the calls are made: its deadline, priority, tenant, id and trace hold for them.
        """
        own = None if headers is None else tuple(headers.items())
        if multiplexed_model_id is not None:
            others = (one for one in own or self._options.own_headers or () if one[0] != MODEL_ID_HEADER)
            own = (*others, (MODEL_ID_HEADER, multiplexed_model_id))
        options = CallOptions(timeout, priority, tenant, cost, own).over(self._options)
        if request is not None:
            options = options.over(options_of(inherit([request])))
        return self._like(self._names[2] if method_name is None else method_name, options)

    def configure(self, **options: Any) -> None:
        """Changes the batching of the model, for all callers and from the next batch on.

        Options are those of the decorator: `max_batch_size` and `max_latency_ms` (of this endpoint
        alone, on `handle.method`), `max_batch_delay_ms`, `policy`, `queue`; and weights of `tenants`.
        It waits for the server's answer; inside an event loop use `jitney.AsyncClient.configure`.
        """
        model, version, endpoint = self._names
        self._connections.configure(model, version, endpoint=endpoint or None, **options)

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> R:
        """Calls the model and waits for its answer, outside of event loops."""
        if self._loop() is not None:
            raise TypeError("inside an event loop write `await handle.remote(...)`")
        return self.remote(*arguments, **keywords).result()

    def __getattr__(self, name: str) -> Handle[..., Any]:
        """Another endpoint of the model."""
        if name.startswith("_"):
            raise AttributeError(name)
        if self._endpoints and name not in self._endpoints:
            known = ", ".join(self._endpoints)
            raise AttributeError(f"{self._names[0]} has no endpoint {name!r}; it has: {known}")
        handle = self._like(name, self._options)
        self.__dict__[name] = handle  # The next look costs nothing.
        return handle

    def __dir__(self) -> list[str]:
        """What completion shows: the public names, and the endpoints where they are known."""
        public = [name for name in (*type.__dir__(type(self)), *vars(self)) if not name.startswith("_")]
        return sorted({*public, *self._endpoints})

    def __repr__(self) -> str:
        model, version, endpoint = self._names
        return f"<jitney.Handle {model}{f'/{version}' if version else ''}{f'.{endpoint}' if endpoint else ''}>"

    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that calls run in; none where a thread waits for them."""
        return None if self._connections.prefers_background else running_loop()

    def _send(
        self,
        loop: asyncio.AbstractEventLoop | None,
        of_threads: Callable[[Callable[[Any], None]], S],
        of_loops: Callable[[Connection], L],
        head: bytes,
        body: bytes,
    ) -> S | L:
        """Sends a call; what its caller holds meanwhile is made for a thread or for the running loop."""
        if loop is None:
            background = self._connections.background()
            held = of_threads(background.cancel)
            background.send(held, head, body)
            return held
        connection = self._connections.latest
        if connection is None or connection.loop is not loop:
            connection = self._connections.connection(loop)
        future = of_loops(connection)
        connection.send(future, head, body)
        return future

    def _like(self, endpoint: str, options: CallOptions) -> Handle[..., Any]:
        model, version, _ = self._names
        connections, endpoints = self._connections, self._endpoints
        return Handle(
            connections, model, version, endpoint, encoding=self._encoding, options=options, endpoints=endpoints
        )

    def _body(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
        if self._encoding == "value":
            return encode_call(arguments, keywords) if keywords or len(arguments) != 1 else encode_one(arguments[0])
        if keywords or len(arguments) != 1:
            raise TypeError(f"a handle with encoding={self._encoding!r} sends one argument, the request's body")
        return json.dumps(arguments[0]).encode() if self._encoding == "json" else bytes(arguments[0])


def options_of(inherited: Inherited) -> CallOptions:
    """What calls for a request have from it, as options."""
    timeout = None if inherited.expires is None else timeout_of(inherited.expires, time.monotonic(), 0.0)
    return CallOptions(timeout, BULK if inherited.is_bulk else None, inherited.tenant, None, inherited.headers or None)


running_loop: Callable[[], asyncio.AbstractEventLoop | None] = asyncio._get_running_loop
"""The event loop that runs in this thread, if one does."""
