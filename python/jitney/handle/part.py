"""Handles of the parts that a definition calls: what is known of the current call travels along.

The timeout of a call is what is left of the caller's deadline, less what the caller is known to need afterwards; its
priority, tenant, request id and trace are the caller's, unless `options` says otherwise. A function that is not `async`
can wait for `.result()`, also where an event loop runs it. In a worker a connection is opened by the first call, to
the address that the worker itself has dialled, and begins with a greeting that says what it is for.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from typing import Any

from jitney.call.context import CURRENT, CallContext, Inherited, inherit
from jitney.call.request import BULK, Request
from jitney.definition.application import Link, Part
from jitney.definition.construction import Resolve
from jitney.handle.connections import Connections
from jitney.handle.frames import CALL_HEAD, HAS_CLAIM, HAS_HEADERS, call_head, call_tail
from jitney.handle.handle import ENCODINGS, Handle, running_loop
from jitney.handle.streams import AsyncCall, AsyncStream, Call, Stream
from jitney.wire.address import Address
from jitney.wire.calls import CallOptions

TIMEOUT_MS_MAX = 0xFFFFFFFF
TIMEOUT = struct.Struct("<I")
"""What CALL_HEAD begins with."""
NO_TIMEOUT = TIMEOUT.pack(0)
KEPT = [
    "_connections",
    "_names",
    "_encoding",
    "_options",
    "_endpoints",
    "_head",
    "_callee",
    "_own",
    "_is_plain",
    "_heads",
]
"""What a handle for one request has from the one that it was made of."""


class PartHandle(Handle):
    """One endpoint of a part, or of another model of the server that runs the calling code."""

    def __init__(self, connections: Connections, *names: str, inherited: Inherited | None = None, **known: Any) -> None:
        super().__init__(connections, *names, **known)
        model, version, endpoint = self._names
        self._callee = f"{model}/{endpoint}"
        self._inherited = inherited
        """What calls have from the request that they belong to; None if they belong to the current call."""
        self._own = self._options
        self._is_plain = self._own == CallOptions()
        texts = [name.encode() for name in (model, version, endpoint, ENCODINGS[self._encoding])]
        lengths = tuple(map(len, texts))
        self._heads = {
            (is_bulk, more): CALL_HEAD.pack(0, is_bulk, more, *lengths)[TIMEOUT.size :] + b"".join(texts)
            for is_bulk in (False, True)
            for more in range((HAS_CLAIM | HAS_HEADERS) + 1)
        }
        """What a call has between its timeout and its claim, by its priority and the bits of what follows."""

    def options(self, *, request: Request | None = None, **given: Any) -> Handle:
        """The same handle with other options; see `Handle.options`. Calls with `request` belong to that request of a
        batch: without it they belong to all of them."""
        handle: Handle = self if not given else super().options(**given)
        return handle._for(request) if request is not None and isinstance(handle, PartHandle) else handle

    def _for(self, request: Request) -> PartHandle:
        """The same for one request; made anew as cheaply as possible, since a batch makes one for every item."""
        handle = PartHandle.__new__(PartHandle)
        own = self.__dict__
        handle.__dict__ = {name: own[name] for name in KEPT}
        handle._inherited = inherit([request])
        return handle

    def remote(self, *arguments: Any, **keywords: Any) -> AsyncCall | Call:
        """Calls the part with one item's arguments, and returns a future of its answer at once."""
        call = CURRENT.get()
        inherited = self._inherited or (None if call is None else call.inherited)
        if inherited is None:
            return super().remote(*arguments, **keywords)
        tail = inherited.encoded
        if tail is not None and inherited.expires is None and self._is_plain:  # Nearly always.
            head = NO_TIMEOUT + self._heads[inherited.is_bulk, tail[0]] + tail[1]
        else:
            head = self._head_for(call, inherited)
        body = self._body(arguments, keywords)
        # A function that is not `async` waits in its thread, where a loop may be running.
        loop = running_loop() if call is None or call.is_async else None
        future: AsyncCall | Call = self._send(loop, Call, AsyncCall, head, body)
        if call is not None and inherited.expires is not None:
            call.watch(self._callee, future)
        return future

    def stream(self, *arguments: Any, **keywords: Any) -> AsyncStream | Stream:
        """Calls a part that streams. The stream ends at the latest when the calling function does."""
        call = CURRENT.get()
        inherited = self._inherited or (None if call is None else call.inherited)
        if inherited is None:
            return super().stream(*arguments, **keywords)
        head, body = self._head_for(call, inherited, streams=True), self._body(arguments, keywords)
        loop = running_loop() if call is None or call.is_async else None
        stream = self._send(loop, Stream, AsyncStream, head, body)
        if call is not None:
            call.keep(stream)
        return stream

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls the part and waits for its answer, in a function that is not `async`."""
        call = CURRENT.get()
        if call is not None and not call.is_async:
            return self.remote(*arguments, **keywords).result()
        return super().__call__(*arguments, **keywords)

    def _head_for(self, call: CallContext | None, inherited: Inherited, streams: bool = False) -> bytes:
        """The head of a call that is made now. Where pieces are passed on as they come the caller needs no reserve."""
        timeout = None
        if inherited.expires is not None:
            callee = "" if streams else self._callee
            now = time.monotonic()
            timeout = call.timeout(inherited, callee, now) if call is not None else inherited.expires - now
        if not self._is_plain:
            return self._head_with_options(inherited, timeout)
        tail = inherited.encoded
        if tail is None:
            tail = inherited.encoded = call_tail(inherited.tenant, None, inherited.headers)
        millis = 0 if timeout is None else min(max(round(timeout * 1000), 1), TIMEOUT_MS_MAX)
        return TIMEOUT.pack(millis) + self._heads[inherited.is_bulk, tail[0]] + tail[1]

    def _head_with_options(self, inherited: Inherited, timeout: float | None) -> bytes:
        """The same where `options` set some of it. Own headers replace inherited ones of the same name."""
        own = self._own
        named = {name.lower() for name, _ in own.own_headers or ()}
        headers = (*(one for one in inherited.headers if one[0] not in named), *(own.own_headers or ()))
        priority = BULK if inherited.is_bulk else None
        lower = CallOptions(None if timeout is None else max(timeout, 0.001), priority, inherited.tenant)
        merged = CallOptions(own.timeout, own.priority, own.tenant, own.cost, headers or None).over(lower)
        model, version, endpoint = self._names
        return call_head(model, version, endpoint, ENCODINGS[self._encoding], merged)

    def _like(self, endpoint: str, options: CallOptions) -> Handle:
        model, version, _ = self._names
        known = {"encoding": self._encoding, "options": options, "endpoints": self._endpoints}
        return PartHandle(self._connections, model, version, endpoint, inherited=self._inherited, **known)


def calling(sock: socket.socket, greeting: bytes) -> Connections:
    """The connections on which a worker calls models of the server that it has dialled."""
    return Connections(dialled_address(sock)._replace(greeting=greeting))


def part_handles(part: Part, version: str, connections: Connections) -> Resolve:
    """The handles of what a part calls, by slot. All parts of an application are served in the same version."""
    handles = {link.slot: _handle(connections, link, version) for link in part.links}
    return handles.__getitem__


def _handle(connections: Connections, link: Link, version: str) -> Any:
    called = version if link.is_part else link.version
    endpoints = dict.fromkeys(link.endpoints, "")
    handle = PartHandle(connections, link.model, called, encoding=link.encoding, endpoints=endpoints)
    return handle if link.view is None else link.view(handle)


def dialled_address(sock: socket.socket) -> Address:
    """Where the other end of a connected socket is."""
    peer = sock.getpeername()
    if sock.family == socket.AF_UNIX:
        return Address("localhost", 0, peer.decode() if isinstance(peer, bytes) else str(peer))
    tls, name = (sock.context, sock.server_hostname) if isinstance(sock, ssl.SSLSocket) else (None, None)
    return Address(peer[0], peer[1], None, tls, server_name=name)
