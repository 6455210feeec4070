"""The entry point: from a command line or a configuration to a workflow archive."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from model_archiver.model_packaging_utils import exit_on_error
from workflow_archiver.arg_parser import ArgParser
from workflow_archiver.workflow_archiver_error import WorkflowArchiverError
from workflow_archiver.workflow_packaging_utils import WorkflowExportUtils


@dataclass
class WorkflowArchiverConfig:
    """The flags of ``torch-workflow-archiver``, by their names in Python."""

    workflow_name: str
    spec_file: str
    handler: str | None = None
    extra_files: str | None = None
    export_path: str | None = None
    force: bool = False


class WorkflowArchiver:
    """Makes workflow archives."""

    @staticmethod
    def generate_workflow_archive(config: WorkflowArchiverConfig) -> None:
        """Writes the archive that ``config`` describes."""
        generate_workflow_archive(config)


def package_workflow(args: Any, manifest: str) -> str:
    """Checks, gathers, writes; returns where the archive is. Nothing is made only to be packed, so nothing is left."""
    export_path = args.export_path or os.getcwd()
    WorkflowExportUtils.validate_inputs(args.workflow_name, export_path)
    WorkflowExportUtils.check_war_already_exists(args.workflow_name, export_path, args.force)
    members = WorkflowExportUtils.gather(args, manifest)
    return WorkflowExportUtils.archive(export_path, args.workflow_name, members)


def generate_workflow_archive(config: WorkflowArchiverConfig | None = None) -> None:
    """Writes the archive of ``config``; without one, of this process's command line."""
    given = config or ArgParser.workflow_archiver_args_parser().parse_args()
    package_workflow(given, WorkflowExportUtils.generate_manifest_json(given))


if __name__ == "__main__":
    exit_on_error(generate_workflow_archive, WorkflowArchiverError)
