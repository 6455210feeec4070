"""The command line of ``torch-model-archiver``."""

from __future__ import annotations

import argparse

from model_archiver.manifest_components.manifest import RuntimeType
from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_packaging_utils import FORMATS


class ArgParser:
    """Where the command line is read."""

    @staticmethod
    def export_model_args_parser() -> ModelArchiverConfig:
        """The configuration from this process's command line."""
        parser = argparse.ArgumentParser(prog="torch-model-archiver", description="Pack a model into an archive.")
        add = parser.add_argument
        add("--model-name", required=True, help="name of the model and of the archive")
        add("-v", "--version", required=True, help="version of the model")
        add("--handler", required=True, help="a stock handler, FILE.py or MODULE:FUNCTION")
        add("--serialized-file", help="the weights")
        add("--model-file", help="the Python file with the model's class")
        add("--extra-files", help="more files, separated by commas; wildcards and directories are allowed")
        runtimes = [runtime.value for runtime in RuntimeType]
        add("--runtime", default=RuntimeType.PYTHON.value, choices=runtimes, help="language of the handler")
        add("--export-path", help="directory to write to [the current one]")
        add("--archive-format", default="default", choices=list(FORMATS), help="what to write")
        add("-f", "--force", action="store_true", help="replace what is there")
        add("-r", "--requirements-file", help="Python packages the handler needs, for pip")
        add("-c", "--config-file", help="settings of the model (yaml)")
        return ModelArchiverConfig.from_args(parser.parse_args())
