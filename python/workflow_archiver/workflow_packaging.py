"""The entry point: from a command line or a configuration to a workflow archive."""

from __future__ import annotations

import argparse
import os
from typing import Any

from model_archiver.packing import exit_on_error
from workflow_archiver.workflow_archiver_config import WorkflowArchiverConfig
from workflow_archiver.workflow_archiver_error import WorkflowArchiverError
from workflow_archiver.workflow_packaging_utils import WorkflowExportUtils

__all__ = ["ArgParser", "WorkflowExportUtils", "generate_workflow_archive", "package_workflow"]


class ArgParser:
    """Where the parser is made."""

    @staticmethod
    def workflow_archiver_args_parser() -> argparse.ArgumentParser:
        """The parser, with every flag."""
        parser = argparse.ArgumentParser(prog="torch-workflow-archiver", description="Pack a workflow into an archive.")
        add = parser.add_argument
        add("--workflow-name", required=True, help="name of the workflow and of the archive")
        add("--spec-file", required=True, help="the workflow's models and their order (yaml)")
        add("--handler", help="the Python file with the functions of the workflow")
        add("--extra-files", help="more files, separated by commas; wildcards and directories are allowed")
        add("--export-path", help="directory to write to, which must exist [the current one]")
        add("-f", "--force", action="store_true", help="replace what is there")
        return parser


def package_workflow(args: Any, manifest: str) -> str:
    """Checks, gathers, writes; returns where the archive is."""
    export_path = args.export_path or os.getcwd()
    WorkflowExportUtils.validate_inputs(args.workflow_name, export_path)
    WorkflowExportUtils.check_war_already_exists(args.workflow_name, export_path, args.force)
    members = WorkflowExportUtils.gather(args, manifest)
    return WorkflowExportUtils.archive(export_path, args.workflow_name, members)


def generate_workflow_archive(config: WorkflowArchiverConfig | None = None) -> None:
    """Writes the archive of ``config``; without one, of this process's command line, whose errors exit with 1."""
    given = config or ArgParser.workflow_archiver_args_parser().parse_args()

    def package() -> str:
        return package_workflow(given, WorkflowExportUtils.generate_manifest_json(given))

    if config is not None:
        package()
    else:
        exit_on_error(package, WorkflowArchiverError)


if __name__ == "__main__":
    generate_workflow_archive()
