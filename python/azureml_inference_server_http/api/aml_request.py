"""`@rawhttp`, and the request that a function with it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from werkzeug.wrappers import Request

Run = TypeVar("Run", bound=Callable[..., object])

raw_http_asked: list[object] = []
"""The functions with `@rawhttp`. As on Azure, any of them makes all requests raw: the mark may stand on a function
that `run` was imported from."""


def rawhttp(func: Run) -> Run:
    """Lets `run` get the request itself."""
    raw_http_asked.append(func)
    return func


class AMLRequest(Request):  # type: ignore[misc]
    """A request over HTTP: `method`, `headers`, `args`, `get_data()`, `files` and whatever else werkzeug has."""
