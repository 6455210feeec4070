"""What the workflow archiver refuses."""


class WorkflowArchiverError(Exception):
    """The archive cannot be made as asked; the message says why."""
