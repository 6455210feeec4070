"""What a handler's exception, or a wrong return value, means for its batch."""

from __future__ import annotations

from typing import Any, NamedTuple

PREDICTION_FAILED = "Prediction failed"
OUT_OF_RESOURCES = "Out of resources"
NOT_A_LIST = "Invalid model predict output"
WRONG_LENGTH = "number of batch response mismatched"


class PredictionException(Exception):
    """Raised by a handler to choose the status and message its request fails with."""

    def __init__(self, message: str, error_code: int = 500) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


class ClientsLeft(Exception):
    """Raised where a handler sends a part of an answer and all clients of its batch have left. Let it pass: it ends the
    batch and is no failure."""


class BatchFailure(NamedTuple):
    """Why a batch failed as a whole; `status` only where the handler chose one."""

    cause: str
    message: str
    status: int | None = None


def failure_of(error: Exception) -> BatchFailure:
    """The cause TorchServe would report for an exception a handler raised."""
    if isinstance(error, PredictionException):
        return BatchFailure("prediction", str(error.message), status_of(error))
    if isinstance(error, MemoryError) or mentions_cuda(error):
        return BatchFailure("memory", OUT_OF_RESOURCES)
    return BatchFailure("raised", PREDICTION_FAILED)


def status_of(error: PredictionException) -> int:
    """The status a handler chose, or 500 if what it gave is no status."""
    try:
        return int(error.error_code)
    except (TypeError, ValueError):
        return 500


def mentions_cuda(error: BaseException) -> bool:
    """Device errors have no common type; their text is what TorchServe goes by."""
    try:
        return "CUDA" in str(error)
    except Exception:
        return False


def check_outputs(outputs: Any, count: int) -> BatchFailure | None:
    """What is wrong with a handler's return value as a whole, if anything."""
    if not isinstance(outputs, list):
        return BatchFailure("not-a-list", NOT_A_LIST)
    if len(outputs) != count:
        return BatchFailure("wrong-length", WRONG_LENGTH)
    return None
