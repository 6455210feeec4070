"""The errors of definitions and calls, and how a model fails one item of a batch.

A model returns an exception in place of an item's output, or raises `ItemErrors`, to fail these items
and no others. Any other exception out of a batch of several fails the whole call; the server then
retries its halves until the bad item is alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class DefinitionError(Exception):
    """The definition is invalid; the message tells what to change. Nothing was served."""


class Error(Exception):
    """A failure with a status and a sentence for the client."""

    status = 500

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = check_status(status)


FieldErrors = Sequence[tuple[str, str]]
"""Fields of a request, each with what is wrong with it."""


class BadInput(Error):
    """The item itself is wrong: the client gets status 400."""

    status = 400
    errors: FieldErrors = ()
    """The fields that do not fit. Clients of HTTP get them as a list beside the message."""

    def __init__(self, message: str, status: int | None = None, errors: FieldErrors = ()) -> None:
        super().__init__(message, status)
        if errors:
            self.errors = errors

    @classmethod
    def joined(cls, failures: Sequence[BadInput]) -> BadInput:
        """Several failures of one request as one."""
        if len(failures) == 1:
            return failures[0]
        return cls("; ".join(map(str, failures)), errors=[field for one in failures for field in one.errors])

    @classmethod
    def missing(cls, names: Iterable[str]) -> BadInput:
        """Parameters without which the endpoint cannot be called."""
        return cls.joined([cls(f"parameter {name!r} is missing", errors=[(name, "is missing")]) for name in names])


class TooCostly(Error):
    """One item costs more than a whole batch may."""

    status = 413


class ItemErrors(Exception):
    """Raised out of a batch: the named positions fail, the others are run again without them."""

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(f"{len(errors)} items failed")
        self.errors = dict(errors)


class RemoteError(Error):
    """A call failed on the server; `kind` is the type of its exception, or the type in the server's error."""

    retry_after: float | None = None
    """Seconds after which the same call may succeed; None where trying again does not help."""

    def __init__(self, message: str, status: int | None = None, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        if status is not None:
            self.status = status


class Overloaded(RemoteError):
    """Rejected before the model saw it: too many requests wait, or there is no worker."""


class Expired(RemoteError, TimeoutError):
    """The deadline passed before there was an answer."""


class NotFound(RemoteError, LookupError):
    """There is no such model, version or endpoint."""


class BadRequest(RemoteError, BadInput):
    """The server says that the request does not fit the model."""


class Disconnected(RemoteError, ConnectionError):
    """The connection ended before the answer; whether the model ran is not known."""


class InferError(Exception):
    """The job itself ended: the model did not load, or the input cannot be read."""


class WrongLength(Exception):
    """The function did not return one output per item; no item of the batch gets an output."""


class NotAnAnswer(WrongLength):
    """The function returned something that cannot be split by item at all."""


def check_status(status: int) -> int:
    """A status that ends a request with a failure."""
    if not 400 <= status <= 599:
        raise ValueError(f"status must be between 400 and 599, not {status!r}")
    return status


def describe(error: BaseException) -> str:
    """The message for the client: an `Error`'s own text; for other exceptions their type and text."""
    if isinstance(error, Error):
        return str(error)
    if isinstance(error, MemoryError):
        return "the model ran out of memory on this request; send less at a time, or raise its memory_limit"
    text = str(error)
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def status_of(error: BaseException) -> int:
    """The status of a failure; 500 unless it has its own. Without memory it is 507, as for every model."""
    if isinstance(error, MemoryError):
        return 507
    return error.status if isinstance(error, Error) else 500


def remote_error(status: int, kind: str, message: str, retry_after: float | None) -> RemoteError:
    """The server's own refusal or failure as an exception."""
    types: dict[int, type[RemoteError]] = {404: NotFound, 408: Expired, 429: Overloaded, 503: Overloaded}
    if kind == "BadRequestException":
        types[400] = BadRequest
    error = types.get(status, RemoteError)(message, status, kind)
    error.retry_after = retry_after
    return error


def disconnected(why: str) -> Disconnected:
    """The end of a connection under way."""
    return Disconnected(why, 503, "ConnectionError")
