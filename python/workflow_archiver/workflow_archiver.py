"""The workflow archiver as a class."""

from __future__ import annotations

from workflow_archiver.workflow_archiver_config import WorkflowArchiverConfig
from workflow_archiver.workflow_packaging import generate_workflow_archive

__all__ = ["WorkflowArchiver", "WorkflowArchiverConfig"]


class WorkflowArchiver:
    """Makes workflow archives."""

    @staticmethod
    def generate_workflow_archive(config: WorkflowArchiverConfig) -> None:
        """Writes the archive that ``config`` describes."""
        generate_workflow_archive(config)
