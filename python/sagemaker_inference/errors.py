"""The exceptions that user code raises and catches."""

from __future__ import annotations


class UnsupportedFormatError(Exception):
    """No default function reads or writes this content type."""

    def __init__(self, content_type: object, **kwargs: object) -> None:
        self._message = (
            f"Content type {content_type} is not supported. Write an input_fn that reads it, or an output_fn that "
            "writes it, or use application/json, text/csv or application/x-npy."
        )
        super().__init__(self._message, **kwargs)


class BaseInferenceToolkitError(Exception):
    """Raised by user code to choose the status and the message of a request that fails."""

    def __init__(self, status_code: int, message: str, phrase: str) -> None:
        self.status_code = status_code
        self.message = message
        self.phrase = phrase
        super().__init__(status_code, message, phrase)


class GenericInferenceToolkitError(BaseInferenceToolkitError):
    """The same where only the status is known."""

    def __init__(self, status_code: int, message: str | None = None, phrase: str | None = None) -> None:
        message = message or "Invalid Request"
        super().__init__(status_code, message, phrase or message)
