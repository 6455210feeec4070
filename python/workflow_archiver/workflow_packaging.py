"""The entry point: from a command line or a configuration to a workflow archive."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Optional

from workflow_archiver.workflow_archiver import WorkflowArchiver, WorkflowArchiverConfig
from workflow_archiver.workflow_archiver_error import WorkflowArchiverError


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


def generate_workflow_archive(config: Optional[WorkflowArchiverConfig] = None) -> None:
    """Writes the archive of ``config``; without one, of this process's command line, whose complaints exit with 1."""
    if config is not None:
        WorkflowArchiver.generate_workflow_archive(config)
        return
    args = ArgParser.workflow_archiver_args_parser().parse_args()
    try:
        WorkflowArchiver.generate_workflow_archive(WorkflowArchiverConfig(**vars(args)))
    except (WorkflowArchiverError, OSError) as error:
        logging.error("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    generate_workflow_archive()
