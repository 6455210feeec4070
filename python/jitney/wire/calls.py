"""How a call through a handle carries its arguments to the model's worker, and an exception back.

Both ends use this file: the client encodes arguments and decodes failures, the worker the other way
round. The server forwards both unread. A failure travels as text, since that is what the server
carries; it names the exception's type, but nothing is ever imported because of it.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any, NamedTuple

from jitney.call.errors import Error, RemoteError, describe
from jitney.wire.values import Raw, decode, encode, encode_one

CALL_PARAMETER = "jitney-call"
"""Under this name the worker finds the arguments; no Python parameter can have it."""
VALUE_TYPE = "application/x-jitney-value"
"""The content type of an answer that is a value."""
STREAM_TYPE = "application/x-jitney-stream"
"""The content type of an answer in pieces that has none."""

NO_PIECES = object()
"""What a stream that ends before its first piece gives."""

FAILURE_MARK = "jitney-exception "
TRACEBACK_CHARS_MAX = 16 << 10
PLAIN = (type(None), bool, int, float, str)


def encode_call(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
    """The arguments of one call."""
    if not keywords and len(arguments) == 1:
        return encode_one(arguments[0])
    return encode((arguments, keywords) if keywords or _is_whole(arguments) else arguments)


def decode_call(raw: Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments."""
    values = decode(raw, imports=False)
    if not isinstance(values, tuple):
        raise ValueError("a call's arguments are a tuple")
    return values if _is_whole(values) else (values, {})


def _is_whole(values: tuple[Any, ...]) -> bool:
    """Whether a tuple reads as positional and named arguments; most calls leave the latter out."""
    return len(values) == 2 and isinstance(values[0], tuple) and isinstance(values[1], dict)


def read_body(body: Raw, content_type: str) -> Any:
    """What a body, or a piece of one, stands for."""
    if content_type == VALUE_TYPE:
        return decode(body)
    if content_type == STREAM_TYPE:
        return NO_PIECES
    if content_type.startswith("application/json"):
        return json.loads(bytes(body))
    if content_type.startswith("text/"):
        return str(body, "utf-8", "replace")
    return bytes(body)


class Failure(NamedTuple):
    """An exception of the model's code, as its caller gets it."""

    module: str
    name: str
    message: str
    arguments: list[Any]
    state: dict[str, Any]
    trace: str


def encode_failure(error: BaseException, with_traceback: bool = False) -> str:
    """An exception as text. Its traceback tells paths and lines of the server, so it goes along only if it may."""
    kind = type(error)
    trace = "".join(traceback.format_exception(kind, error, error.__traceback__)) if with_traceback else ""
    failure = Failure(
        module=kind.__module__,
        name=kind.__qualname__,
        message=describe(error),
        arguments=list(error.args) if all(isinstance(one, PLAIN) for one in error.args) else [str(error)],
        state={name: one for name, one in vars(error).items() if isinstance(one, PLAIN)},
        trace=trace[-TRACEBACK_CHARS_MAX:],
    )
    return FAILURE_MARK + json.dumps(failure)


def decode_failure(message: str, status: int) -> BaseException | None:
    """The exception of such a text; None if it is another."""
    if not message.startswith(FAILURE_MARK):
        return None
    try:
        failure = Failure(*json.loads(message[len(FAILURE_MARK) :]))
    except (ValueError, TypeError):
        return None
    error = _same_type(failure) or RemoteError(failure.message, status, f"{failure.module}.{failure.name}")
    if failure.trace:
        error.__cause__ = RemoteTraceback(failure.trace)
    return error


class RemoteTraceback(Exception):
    """The cause of an exception that came from a worker: its traceback there."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        return f"\n{self.trace.rstrip()}\n(in the model's worker)"


def _same_type(failure: Failure) -> BaseException | None:
    """The exception itself, if this process has loaded its type; `__init__` may want other arguments."""
    found: Any = sys.modules.get(failure.module)
    for name in failure.name.split("."):
        found = getattr(found, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    try:
        error = found.__new__(found, *failure.arguments)
        error.args = tuple(failure.arguments)
        error.__dict__.update(failure.state)
    except Exception:
        return None
    if isinstance(error, Error):
        error.args = (failure.message,)
    return error
