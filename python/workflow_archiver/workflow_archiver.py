"""Packing a workflow: its specification, its functions, more files, a manifest."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Optional

from model_archiver.manifest_components.manifest import created_on
from model_archiver.packing import NAME, Members, write
from model_archiver.version import __version__
from workflow_archiver.workflow_archiver_error import WorkflowArchiverError


@dataclass
class WorkflowArchiverConfig:
    """The flags of ``torch-workflow-archiver``, by their names in Python."""

    workflow_name: str
    spec_file: str
    handler: Optional[str] = None
    extra_files: Optional[str] = None
    export_path: Optional[str] = None
    force: bool = False


class WorkflowArchiver:
    """Makes workflow archives."""

    @staticmethod
    def generate_workflow_archive(config: WorkflowArchiverConfig) -> None:
        """Writes the archive that ``config`` describes."""
        path = _output(config)
        members = Members()
        workflow = {
            "workflowName": config.workflow_name,
            "specFile": members.add(config.spec_file, "--spec-file"),
            "handler": members.add(config.handler, "--handler"),
        }
        members.add_list(config.extra_files)
        manifest = {
            "createdOn": created_on(),
            "workflow": {key: value for key, value in workflow.items() if value is not None},
            "archiverVersion": __version__,
        }
        members.files["WAR-INF/MANIFEST.json"] = json.dumps(manifest, indent=2).encode()
        write(members, path, config.workflow_name, "default")


def _output(config: WorkflowArchiverConfig) -> str:
    if not NAME.fullmatch(config.workflow_name):
        message = f"{config.workflow_name!r} cannot be a workflow name; it must match ^{NAME.pattern}$"
        raise WorkflowArchiverError(message)
    export_path = config.export_path or os.getcwd()
    if not os.path.isdir(export_path):
        raise WorkflowArchiverError(f"--export-path is not a directory: {export_path}")
    path = os.path.join(export_path, config.workflow_name + ".war")
    if os.path.exists(path) and not config.force:
        raise WorkflowArchiverError(f"{path} already exists.\nPlease specify --force/-f option to overwrite it.")
    return path
