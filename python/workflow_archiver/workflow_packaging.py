"""The entry point: from a command line or a configuration to a workflow archive."""

from __future__ import annotations

import os
from typing import Any

from model_archiver.packing import exit_on_error
from workflow_archiver.arg_parser import ArgParser
from workflow_archiver.workflow_archiver_config import WorkflowArchiverConfig
from workflow_archiver.workflow_archiver_error import WorkflowArchiverError
from workflow_archiver.workflow_packaging_utils import WorkflowExportUtils

__all__ = ["ArgParser", "WorkflowExportUtils", "generate_workflow_archive", "package_workflow"]


def package_workflow(args: Any, manifest: str) -> str:
    """Checks, gathers, writes; returns where the archive is."""
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
