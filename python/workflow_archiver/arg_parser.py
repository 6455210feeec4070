"""The flags of ``torch-workflow-archiver``."""

from __future__ import annotations

import argparse


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
