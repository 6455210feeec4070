"""The entry point: from a command line or a configuration to a workflow archive."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import Any

from model_archiver.model_packaging_utils import exit_on_error
from workflow_archiver.workflow_archiver_error import WorkflowArchiverError
from workflow_archiver.workflow_packaging_utils import WorkflowExportUtils


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
