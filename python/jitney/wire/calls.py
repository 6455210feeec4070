"""How a call through a handle carries its arguments to the model's worker, and an exception back.

Both ends use this file: the client encodes arguments and decodes failures, the worker the other way
round. The server forwards both unread. A failure travels as text, since that is what the server
carries; it names the exception's type, but nothing is ever imported because of it. Handles write the options of a call
into its head, HTTP clients into headers.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from dataclasses import dataclass
from typing import Any, NamedTuple

from jitney.call.errors import Error, RemoteError, describe
from jitney.wire.values import Raw, decode, encode

PRIORITIES = ("interactive", "bulk")
TENANT_MAX = 128
COST_MAX = 2**64 - 1
HEADERS_MAX = 0xFFFF
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True)
class CallOptions:
    """The options of a call, checked before anything is sent; None where not set."""

    timeout: float | None = None
    """The deadline, in seconds from the call's arrival at the server."""
    priority: str | None = None
    tenant: str | None = None
    cost: int | None = None
    own_headers: tuple[tuple[str, str], ...] | None = None
    """Headers of the caller's own, such as `x-request-id` and `traceparent`."""

    def __post_init__(self) -> None:
        if self.priority is not None and self.priority not in PRIORITIES:
            raise ValueError(f"priority must be one of {', '.join(PRIORITIES)}, not {self.priority!r}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout must be a number of seconds above 0, not {self.timeout!r}")
        if self.tenant is not None and not _names_a_tenant(self.tenant):
            raise ValueError(f"tenant must be 1 to {TENANT_MAX} ASCII characters, not {self.tenant!r}")
        if self.cost is not None and not (type(self.cost) is int and 0 < self.cost <= COST_MAX):
            raise ValueError(f"cost must be a whole number above 0, not {self.cost!r}")
        for name, value in self.own_headers or ():
            if not (NAME.fullmatch(name) and value.isascii() and (value.isprintable())):
                raise ValueError(
                    f"a header has a name as in HTTP and printable ASCII characters, not {name}: {value!r}"
                )
        if self.own_headers and sum(6 + len(name) + len(value) for name, value in self.own_headers) > HEADERS_MAX:
            raise ValueError(f"headers must have at most {HEADERS_MAX} bytes in all")

    def over(self, lower: CallOptions) -> CallOptions:
        """These; unset ones come from `lower`."""
        return CallOptions(
            lower.timeout if self.timeout is None else self.timeout,
            lower.priority if self.priority is None else self.priority,
            lower.tenant if self.tenant is None else self.tenant,
            lower.cost if self.cost is None else self.cost,
            lower.own_headers if self.own_headers is None else self.own_headers,
        )

    @property
    def timeout_ms(self) -> int | None:
        """Whole milliseconds, at least one."""
        return None if self.timeout is None else max(round(self.timeout * 1000), 1)

    @property
    def headers(self) -> dict[str, str]:
        """The same as headers of an HTTP request."""
        headers = {
            "x-jitney-timeout-ms": self.timeout_ms,
            "x-jitney-priority": self.priority,
            "x-jitney-tenant": self.tenant,
            "x-jitney-cost": self.cost,
        }
        said = {name: str(value) for name, value in headers.items() if value is not None}
        return dict(self.own_headers or ()) | said


def _names_a_tenant(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= TENANT_MAX and name.isascii() and name.isprintable()


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
    """The arguments of one call. For a lone one `encode_one` writes the same, for less."""
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
