"""Calls of other models from a model of the Python backend: `InferenceRequest.exec` and `async_exec`.

They go the way of every handle. A call that fails is a response with an error, as in Triton.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Iterator
from typing import Any

from jitney.handle.connections import Connections
from jitney.handle.frames import call_head
from jitney.handle.streams import AsyncCall, AsyncStream, Call, Stream
from jitney.triton import framed
from jitney.triton.messages import InferenceRequest, InferenceResponse, TritonError
from jitney.wire.calls import CallOptions

STATUS_CODES = {
    400: TritonError.INVALID_ARG,
    404: TritonError.NOT_FOUND,
    409: TritonError.ALREADY_EXISTS,
    503: TritonError.UNAVAILABLE,
}


class Calls:
    """Calls through the connections of this worker."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def call(self, request: InferenceRequest, decoupled: bool, timeout: int) -> Any:
        """Calls a model and waits, also where an event loop runs the caller."""
        background = self._connections.background()
        held: Any = (Stream if decoupled else Call)(background.cancel)
        background.send(held, _head(request, timeout), framed.request(request))
        if decoupled:
            return _responses(held)
        try:
            return framed.response(held.result(_seconds(timeout)))
        except concurrent.futures.TimeoutError:
            held.cancel()
            return _late(timeout)
        except Exception as error:
            return failed(error)

    async def call_async(self, request: InferenceRequest, decoupled: bool, timeout: int) -> Any:
        """Calls a model from a coroutine."""
        connection = self._connections.connection(asyncio.get_running_loop())
        held: Any = (AsyncStream if decoupled else AsyncCall)(connection)
        connection.send(held, _head(request, timeout), framed.request(request))
        if decoupled:
            return _responses_async(held)
        try:
            return framed.response(await asyncio.wait_for(held, _seconds(timeout)))
        except asyncio.TimeoutError:
            return _late(timeout)
        except Exception as error:
            return failed(error)


def _head(request: InferenceRequest, timeout: int) -> bytes:
    """What the frame of a call says; the timeout is in microseconds, and 0 for none."""
    options = CallOptions(_seconds(timeout))
    version = request.model_version()
    named = "" if version < 0 else str(version)
    return call_head(request.model_name(), named, "", framed.CONTENT_TYPE, options)


def _seconds(timeout: int) -> float | None:
    return timeout / 1e6 if timeout > 0 else None


def _late(timeout: int) -> InferenceResponse:
    """The response of a call that was given up: a deadline that the server keeps does not stop what runs already."""
    return InferenceResponse(error=TritonError(f"no answer within {timeout} microseconds", TritonError.UNAVAILABLE))


def _responses(pieces: Any) -> Iterator[InferenceResponse]:
    try:
        for piece in pieces:
            yield framed.response(piece)
    except Exception as error:
        yield failed(error)


async def _responses_async(pieces: Any) -> AsyncIterator[InferenceResponse]:
    try:
        async for piece in pieces:
            yield framed.response(piece)
    except Exception as error:
        yield failed(error)


def failed(error: BaseException) -> InferenceResponse:
    """The response of a call that failed."""
    code = STATUS_CODES.get(getattr(error, "status", 500), TritonError.INTERNAL)
    return InferenceResponse(error=TritonError(str(error), code))
