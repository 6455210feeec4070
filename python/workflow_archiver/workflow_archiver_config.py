"""The configuration of a workflow archive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class WorkflowArchiverConfig:
    """The flags of ``torch-workflow-archiver``, by their names in Python."""

    workflow_name: str
    spec_file: str
    handler: str | None = None
    extra_files: str | None = None
    export_path: str | None = None
    force: bool = False
