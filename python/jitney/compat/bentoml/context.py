"""`bentoml.Context`: what an API reads about its request and sets about its answer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from jitney.call.request import Request


class ServiceState(dict[str, Any]):
    """What an application keeps between calls; one for each worker."""


_state = ServiceState()
_current: list[Any] = []


def set_current_service(made: Any) -> None:
    """This object is the service of this process."""
    _current[:] = [made]


def get_current_service() -> Any:
    """The object of the service that this process runs, for web applications beside it."""
    return _current[0] if _current else None


class RequestContext:
    """The request: its headers, and what else is known of it."""

    def __init__(self, request: Request | None) -> None:
        self._request = request

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers the client sent."""
        return {} if self._request is None else self._request.headers

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The same, as BentoML 1.0 called them."""
        return self.headers


class ResponseContext:
    """The answer: its status and headers."""

    def __init__(self, request: Request | None) -> None:
        self._request = request if request is not None else Request()

    @property
    def status_code(self) -> int:
        """The answer's status."""
        return self._request.status or 200

    @status_code.setter
    def status_code(self, status: int) -> None:
        self._request.status = int(status)

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers."""
        return self._request.response_headers

    @property
    def metadata(self) -> dict[str, str]:
        """The same, as BentoML 1.0 called them."""
        return self.headers


class Context:
    """One request, for an API with a parameter of this type."""

    def __init__(self, request: Request | None = None) -> None:
        self.request = RequestContext(request)
        self.response = ResponseContext(request)
        self.state = _state
        self._temp_dir: str | None = None

    @property
    def temp_dir(self) -> str:
        """A directory for the files of this request; it is removed after the answer."""
        if self._temp_dir is None:
            self._temp_dir = tempfile.mkdtemp(prefix="jitney-bentoml-")
        return self._temp_dir

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        """Removes its files."""
        if self._temp_dir is not None:
            shutil.rmtree(self._temp_dir, ignore_errors=True)
            self._temp_dir = None
