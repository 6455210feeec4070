"""Calls from a worker to other models of its server: handles over connections of their own.

A connection is opened by the first call, to the address that the worker itself has dialled, and begins with a greeting
that says what it is for; then both sides speak the frames of protocol/handles.md. Loaded only for definitions that
call others.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from jitney.definition.application import Link, Part
from jitney.definition.construction import Resolve
from jitney.handle.connections import Connections
from jitney.handle.part import PartHandle
from jitney.wire.address import Address


def part_handles(part: Part, version: str, sock: socket.socket, greeting: bytes) -> Resolve:
    """The handles of what a part calls, by slot. All parts of an application are served in the same version."""
    connections = Connections(dialled_address(sock)._replace(greeting=greeting))
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
