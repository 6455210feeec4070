"""What a raw endpoint gets: a request as it came, and nothing of it read before it is asked for."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from jitney.call.errors import BadInput
from jitney.call.request import Request

Pairs = Iterable[tuple[str, str]]


class HttpHeaders(Mapping[str, str]):
    """Headers by their names in any case. Several of one name read as one, with commas between."""

    def __init__(self, pairs: Mapping[str, str] | Pairs = ()) -> None:
        given = pairs.items() if isinstance(pairs, Mapping) else pairs
        self.pairs: list[tuple[str, str]] = [(name.lower(), value) for name, value in given]
        """All of them, in the order in which they came."""

    def get_all(self, name: str) -> list[str]:
        """Every value of one name."""
        wanted = name.lower()
        return [value for known, value in self.pairs if known == wanted]

    def __getitem__(self, name: str) -> str:
        values = self.get_all(name)
        if not values:
            raise KeyError(name)
        return ("; " if name.lower() == "cookie" else ", ").join(values)

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.pairs))

    def __len__(self) -> int:
        return len(dict(self.pairs))

    def __repr__(self) -> str:
        return f"HttpHeaders({self.pairs!r})"


class HttpRequest(Request):
    """One request over HTTP, unparsed."""

    def __init__(
        self,
        method: str = "GET",
        path: str = "/",
        *,
        query_string: str = "",
        headers: Mapping[str, str] | Pairs = (),
        body: bytes | bytearray | memoryview = b"",
        root_path: str = "",
        client: tuple[str, int] | None = None,
        id: str = "",
        endpoint: str = "",
    ) -> None:
        super().__init__(id, None, endpoint)
        self._headers: HttpHeaders = HttpHeaders(headers)
        self.method = method
        self.root_path = root_path
        """What the path began with before the mount took it off."""
        self.raw_path = urllib.parse.quote(root_path + path, safe="/%:@!$&'()*+,;=~-._")
        """The whole path as the client sent it, encoded."""
        self.path = path
        """The path below the mount, decoded; it begins with a slash."""
        self.query_string = query_string
        self.client = client
        """Address and port of whoever sent it, if they are known."""
        self._body = body

    @property
    def headers(self) -> HttpHeaders:
        """The headers the client sent."""
        return self._headers

    @cached_property
    def query(self) -> dict[str, str]:
        """The fields of the query; of several of one name the last."""
        return dict(urllib.parse.parse_qsl(self.query_string, keep_blank_values=True))

    @cached_property
    def body(self) -> bytes:
        """The body."""
        return bytes(self._body)

    @property
    def media_type(self) -> str:
        """The type of the body without its parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def text(self) -> str:
        """The body as text."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"the body is not UTF-8: {error.reason}") from None

    def json(self) -> Any:
        """The body as JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"the body is not JSON: {error}") from None

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.root_path}{self.path})"
