"""A server as Python sees it: `jitney.connect` gives one, `model` a handle of what it serves.

It can be used from any thread and any event loop at the same time. Every loop has a connection of
its own, so that a call inside a loop never changes threads; all other threads share one, on a loop
in the background.
"""

from __future__ import annotations

import asyncio
import ssl

from jitney.handle.connections import Connections, Manager
from jitney.handle.handle import Handle
from jitney.wire.address import read_url


def connect(
    url: str,
    *,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    management_url: str | None = None,
    management_token: str | None = None,
) -> Session:
    """A server's inference address, as `http://127.0.0.1:8080`; nothing is sent before the first call.

    `token` is the inference key of a server that asks for one. `tls` is for `https://` addresses
    whose certificate the system does not know. `unix:/path` is a socket's file. `management_url` is
    for `Handle.configure`.
    """
    manager = Manager(management_url, management_token, tls) if management_url else None
    return Session(read_url(url, token, tls), manager)


class Session(Connections):
    """A server's models. Close it, or use it in a `with`, to end its connections."""

    def model(self, name: str, version: str = "", *, encoding: str = "value") -> Handle:
        """A handle of a model, in its default version unless one is named.

        `encoding` is how a call's one argument is sent to models that are not written with this
        package: as "json" or as plain "bytes".
        """
        return Handle(self, name, version, encoding=encoding)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await asyncio.sleep(0)  # The running loop's own connection ends in its next turn.
