"""A client for programs with threads: one connection per thread and address, kept open."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from jitney.client import requests
from jitney.client.methods import ClientMethods, Conversation, Step
from jitney.client.requests import ClientRequest, PredictOptions, Reply, Retry, Unreachable
from jitney.wire.address import Address, read_url
from jitney.wire.calls import read_body

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

PIECE_BYTES = 64 << 10


class Client(ClientMethods[Any, str, dict[str, str], list[dict[str, Any]]]):
    """Predictions at `url`, management at `management_url` (the same address unless given)."""

    def __init__(
        self,
        url: str,
        management_url: str | None = None,
        *,
        token: str | None = None,
        management_token: str | None = None,
        timeout: float = 60.0,
        retry: Retry | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(retry)
        inference = read_url(url, token, tls)
        management = read_url(management_url or url, management_token or token, tls)
        self._addresses = (inference, management)
        self._timeout = timeout
        self._here = threading.local()

    def stream(self, model: str, data: Any = b"", **options: Unpack[PredictOptions]) -> Iterator[Any]:
        """A model's answer as it is made: text or bytes, cut where the network cuts them. Options are those of
        `predict`."""
        request = requests.predict(model, data, **options)
        response = self._try(request, self._connection(request))
        if response.status >= 400:
            raise _whole(response).error()
        content_type = response.headers.get("content-type", "")
        while True:
            piece = response.read1(PIECE_BYTES)
            if not piece:
                return
            yield read_body(piece, content_type if content_type.startswith("text/") else "")

    def ping(self) -> bool:
        """Whether the server is reachable and healthy."""
        try:
            return self._once(requests.ping()).status == 200
        except OSError:
            return False

    def close(self) -> None:
        """Ends this thread's connections."""
        for connection in vars(self._here).values():
            connection.close()
        vars(self._here).clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, conversation: Conversation[T]) -> T:
        outcome: Reply | OSError | None = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = self._step(step)

    def _step(self, step: Step) -> Reply | OSError | None:
        """Sends the request, or pauses."""
        if isinstance(step, ClientRequest):
            try:
                return self._once(step)
            except OSError as error:
                return error
        time.sleep(step)
        return None

    def _once(self, request: ClientRequest) -> Reply:
        return _whole(self._try(request, self._connection(request)))

    def _try(self, request: ClientRequest, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        """A kept connection may have been closed meanwhile, which is seen only when it is used."""
        fresh = connection.sock is None
        try:
            return self._send(request, connection, fresh)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            connection.close()
            if fresh:
                raise
            return self._send(request, connection, True)
        except (OSError, http.client.HTTPException):
            connection.close()
            raise

    def _send(
        self, request: ClientRequest, connection: http.client.HTTPConnection, fresh: bool
    ) -> http.client.HTTPResponse:
        token = self._addresses[request.management].token
        headers = {**request.headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        if fresh:
            try:
                connection.connect()
            except OSError as error:
                raise Unreachable(str(error)) from error
        connection.request(request.method, request.path, request.body, headers)
        return connection.getresponse()

    def _connection(self, request: ClientRequest) -> http.client.HTTPConnection:
        name = "management" if request.management else "inference"
        connection: http.client.HTTPConnection | None = getattr(self._here, name, None)
        if connection is None:
            connection = _open(self._addresses[request.management], self._timeout)
            setattr(self._here, name, connection)
        return connection


def _open(address: Address, timeout: float) -> http.client.HTTPConnection:
    if address.unix_path is not None:
        raise ValueError("this client speaks TCP; use jitney.connect for unix: addresses")
    if address.tls is not None:
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=address.tls)
    return http.client.HTTPConnection(address.host, address.port, timeout=timeout)


def _whole(response: http.client.HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())
