"""Where a server is: the address that a URL names, for handles and HTTP clients."""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """Where a server is."""

    host: str
    port: int
    unix_path: str | None = None
    tls: ssl.SSLContext | None = None
    token: str | None = None
    greeting: bytes | None = None
    """What begins a connection that has no HTTP before its frames: that of a worker."""
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host."""

    @property
    def url(self) -> str:
        """The same as a URL."""
        if self.unix_path is not None:
            return f"unix:{self.unix_path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"

    def __str__(self) -> str:
        return self.unix_path or f"{self.host}:{self.port}"


def read_url(url: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> Address:
    """The address that a URL names."""
    if url.startswith("unix:"):
        return Address("localhost", 0, unquote(url[len("unix:") :]), None, token)
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError(
            f"{url!r} is not the address of a server; write http://host:port, https://host:port or unix:/path"
        )
    if parts.scheme == "https":
        tls = tls or ssl.create_default_context()
    return Address(parts.hostname, parts.port or PORTS[parts.scheme], None, tls, token)
