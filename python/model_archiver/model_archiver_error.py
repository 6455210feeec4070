"""The archiver's error."""


class ModelArchiverError(Exception):
    """The archive cannot be made; the message tells why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
