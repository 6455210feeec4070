"""Clients of a soak beside those of plain HTTP/1.1: gRPC, HTTP/2 and handles, each with a connection and a key.

Closed loop, as in `harness.load`: the next row is sent when the answer to the last one is here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import urlsplit

import grpc

from harness.http2 import Http2
from harness.load import BodyOf, Check, LoadResult
from harness.package import jitney
from harness.server import ASK_SECONDS, Server
from test_grpc import INFERENCE, Stub, address

Ask = Callable[[bytes], tuple[int, bytes]]
"""Sends a row; the status as HTTP has it, and the answer or the JSON of an error."""

HTTP_STATUS = {"UNAVAILABLE": 503, "RESOURCE_EXHAUSTED": 429, "DEADLINE_EXCEEDED": 408, "INTERNAL": 500}


@contextmanager
def over_grpc(server: Server, model: str, key: str) -> Iterator[Ask]:
    """grpcio."""
    with grpc.insecure_channel(address(server, "inference"), options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub, metadata = Stub(channel, INFERENCE), [("authorization", f"Bearer {key}")]

        def ask(row: bytes) -> tuple[int, bytes]:
            fields = {"model_name": model, "input": {"body": row}}
            try:
                answer, _ = stub("Predictions", timeout=ASK_SECONDS, metadata=metadata, **fields)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE and "[reason:" not in (error.details() or ""):
                    raise ConnectionError(error.details()) from error
                return HTTP_STATUS.get(error.code().name, 0), told(error.details())
            return 200, answer.prediction

        yield ask


@contextmanager
def over_http2(server: Server, model: str, key: str) -> Iterator[Ask]:
    """One connection, a stream for each row."""
    client, stream = Http2(server.address), -1

    def ask(row: bytes) -> tuple[int, bytes]:
        nonlocal stream
        stream += 2
        client.ask(stream, "POST", f"/predictions/{model}", authorization=f"Bearer {key}")
        client.send(stream, row, end=True)
        while stream not in client.ended:
            if not client.read() or (client.goaway is not None and stream not in client.bodies):
                raise ConnectionError("the server ends the connection")
        body = client.bodies.pop(stream, b"")
        return (json.loads(body)["code"] if body.startswith(b"{") else 200), body

    try:
        yield ask
    finally:
        client.socket.close()


@contextmanager
def over_handles(server: Server, model: str, key: str) -> Iterator[Ask]:
    """A handle of the Python client."""
    url = urlsplit(server.urls["inference"])
    with jitney.connect(f"{url.scheme}://{url.netloc}", token=key) as session:
        handle = session.model(model, encoding="bytes")

        def ask(row: bytes) -> tuple[int, bytes]:
            try:
                return 200, handle.remote(row).result(timeout=ASK_SECONDS)
            except jitney.Disconnected as error:
                raise ConnectionError(str(error)) from error
            except jitney.Error as error:
                return error.status, told(str(error))

        yield ask


PROTOCOLS = {"gRPC": over_grpc, "HTTP/2": over_http2, "handles": over_handles}


def run_client(
    connect: Callable[[], AbstractContextManager[Ask]], row: BodyOf, check: Check, over: Callable[[], bool]
) -> LoadResult:
    """Sends rows one after another until it is over. A connection that the server gave up is made anew, and its row is
    sent again: it was not answered, and may have been run."""
    result, number, began = LoadResult(), None, time.perf_counter()
    while not over():
        try:
            with connect() as ask:
                while not over():
                    if number is None:
                        number = result.sent
                        result.sent += 1
                    status, body = ask(row(number))
                    result.answered += 1
                    result.statuses[status] += 1
                    if not check(number, status, body):
                        result.wrong += 1
                        result.note(f"request {number}: {status} {body[:200]!r}")
                    number = None
        except (OSError, AssertionError):
            result.retried += 1
    result.sent -= number is not None
    result.seconds = time.perf_counter() - began
    return result


def told(message: str | None) -> bytes:
    """An error as the JSON of REST has it."""
    return json.dumps({"message": message or ""}).encode()
