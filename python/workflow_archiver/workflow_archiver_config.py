"""Everything that can be said about a workflow archive to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass
class WorkflowArchiverConfig:
    """The flags of ``torch-workflow-archiver``, by their names in Python."""

    workflow_name: str
    spec_file: str
    handler: Optional[str] = None
    extra_files: Optional[str] = None
    export_path: Optional[str] = None
    force: bool = False
