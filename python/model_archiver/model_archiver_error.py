"""What the archiver refuses."""


class ModelArchiverError(Exception):
    """The archive cannot be made as asked; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
