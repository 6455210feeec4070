"""The request that `__call__` gets over HTTP: Starlette's where it is installed, else a small one like it.

Backends of the older API get one that looks like Flask's.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from typing import Any

from jitney.http.request import HttpHeaders, HttpRequest


class Fields(dict[str, Any]):
    """Fields of a query or form; of several of one name the first, or the last as in Starlette."""

    def __init__(self, pairs: list[tuple[str, Any]], last: bool = False) -> None:
        super().__init__(pairs if last else reversed(pairs))
        self._pairs = pairs

    def get(self, key: str, default: Any = None, type: Any = None) -> Any:
        """One field, made into a `type` if one is given; the default if it cannot be."""
        if key not in self:
            return default
        if type is None:
            return self[key]
        try:
            return type(self[key])
        except ValueError:
            return default

    def getlist(self, key: str) -> list[Any]:
        """Every value of one name."""
        return [value for known, value in self._pairs if known == key]

    def multi_items(self) -> list[tuple[str, Any]]:
        """All of them."""
        return self._pairs

    def to_dict(self, flat: bool = True) -> dict[str, Any]:
        """All of them as a dictionary."""
        return dict(self) if flat else {key: self.getlist(key) for key in self}


class FlaskRequest:
    """A request over HTTP."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.method: str = told["method"]
        self.path: str = told["path"]
        self.query_string: bytes = told["query"].encode()
        self.headers = HttpHeaders([(name, value) for name, value in told["headers"]])
        self.data: bytes = told["body"]
        self.remote_addr: str | None = told.get("client")
        self.args = Fields(urllib.parse.parse_qsl(told["query"], keep_blank_values=True))

    def get_data(self, as_text: bool = False) -> Any:
        """The body."""
        return self.data.decode() if as_text else self.data

    def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:
        """The body as JSON."""
        try:
            return json.loads(self.data) if force or self.is_json else None
        except ValueError:
            if silent:
                return None
            raise

    @property
    def is_json(self) -> bool:
        """Whether the body says that it is JSON."""
        kind: str = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind == "application/json" or kind.endswith("+json")

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is something else."""
        return self.get_json()

    @property
    def query_params(self) -> Fields:
        """The fields of the query, as Ray 1.2 called them."""
        return self.args

    @property
    def form(self) -> Fields:
        """The fields of a form."""
        kind = self.headers.get("content-type", "")
        is_form = kind.startswith("application/x-www-form-urlencoded")
        return Fields(urllib.parse.parse_qsl(self.data.decode(), keep_blank_values=True) if is_form else [])

    @property
    def values(self) -> Fields:
        """The fields of the query and of the form."""
        return Fields([*self.args._pairs, *self.form._pairs])


class PythonRequest:
    """What stands in the place of a web request for calls from Python. In Ray 1.0 it held their arguments."""

    def __init__(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.args = Fields(list(kwargs.items()))
        self.kwargs = kwargs
        self.data = args[0] if args else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"this call came from Python and has no {name!r}: ask serve.context.web before you use the web request"
        )


def told_of(request: HttpRequest) -> dict[str, Any]:
    """A request as it travels to a backend."""
    return {
        "method": request.method,
        "path": request.root_path + request.path,
        "query": request.query_string,
        "headers": [list(pair) for pair in request.headers.pairs],
        "body": request.body,
        "client": request.client[0] if request.client else None,
    }


def web_request(scope: Mapping[str, Any], receive: Any, send: Any = None) -> Any:
    """The request of an ASGI scope."""
    try:
        from starlette.requests import Request
    except ImportError:
        return WebRequest(scope, receive)
    return Request(scope, receive, send)


class WebRequest:
    """The part of Starlette's request that applications of Ray Serve use."""

    def __init__(self, scope: Mapping[str, Any], receive: Any) -> None:
        self.scope = scope
        self._receive = receive
        self._body: bytes | None = None
        self.method: str = scope["method"]
        self.headers = HttpHeaders([(name.decode("latin-1"), one.decode("latin-1")) for name, one in scope["headers"]])
        query = urllib.parse.parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        self.query_params = Fields(query, last=True)
        self.path_params: dict[str, Any] = {}
        self.client = scope.get("client")
        self.url = WebUrl(scope, self.headers.get("host", ""))

    async def body(self) -> bytes:
        """The body."""
        if self._body is None:
            parts = [part async for part in self.stream()]
            self._body = b"".join(parts)
        return self._body

    async def stream(self) -> AsyncIterator[bytes]:
        """The body in pieces."""
        more = True
        while more:
            message = await self._receive()
            more = message.get("more_body", False)
            yield message.get("body", b"")

    async def json(self) -> Any:
        """The body as JSON."""
        return json.loads(await self.body())

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies by name."""
        pairs = (one.partition("=") for one in self.headers.get("cookie", "").split(";") if "=" in one)
        return {name.strip(): value.strip() for name, _, value in pairs}


class WebUrl:
    """Where a request went."""

    def __init__(self, scope: Mapping[str, Any], host: str) -> None:
        self.scheme: str = scope.get("scheme", "http")
        self.netloc = host
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("latin-1")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}" + (f"?{self.query}" if self.query else "")
