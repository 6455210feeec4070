"""BentoML's exceptions. Their `error_code` is the status of the answer."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from jitney.call.errors import Error


class BentoMLException(Error):
    """What all others are; subclass it and set `error_code`."""

    error_code = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, message: Any = "", *, error_code: HTTPStatus | None = None) -> None:
        super().__init__(str(message), status=int(error_code or self.error_code))
        self.message = str(message)
        if error_code is not None:
            self.error_code = error_code


class StateException(BentoMLException):
    """Something is not in the state that it should be in."""

    error_code = HTTPStatus.BAD_REQUEST


class RemoteException(BentoMLException):
    """A server answered with an error."""

    def __init__(self, message: Any = "", payload: Any = None, *, error_code: HTTPStatus | None = None) -> None:
        super().__init__(message, error_code=error_code)
        self.payload = payload


class InvalidArgument(BentoMLException):
    """An argument does not fit."""

    error_code = HTTPStatus.BAD_REQUEST


class BadInput(InvalidArgument):
    """The request does not fit."""


class InternalServerError(BentoMLException):
    """Something went wrong in the service."""


class NotFound(BentoMLException):
    """There is no such thing."""

    error_code = HTTPStatus.NOT_FOUND


class UnprocessableEntity(BentoMLException):
    """The request can be read, and nothing can be done with it."""

    error_code = HTTPStatus.UNPROCESSABLE_ENTITY


class TooManyRequests(BentoMLException):
    """The client asks too often."""

    error_code = HTTPStatus.TOO_MANY_REQUESTS


class ServiceUnavailable(BentoMLException):
    """The service cannot answer now."""

    error_code = HTTPStatus.SERVICE_UNAVAILABLE


class BentoMLConfigException(BentoMLException):
    """A configuration has something that it must not have."""


class MissingDependencyException(BentoMLException):
    """A package is missing."""


class NotSupported(BentoMLException, NotImplementedError):
    """This surface does not have it; the text says what to do instead."""

    error_code = HTTPStatus.NOT_IMPLEMENTED
