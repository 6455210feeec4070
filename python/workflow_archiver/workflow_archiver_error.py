"""The workflow archiver's error."""


class WorkflowArchiverError(Exception):
    """The archive cannot be made; the message tells why."""
