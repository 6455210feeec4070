"""The entry point: from a command line or a configuration to an archive."""

from __future__ import annotations

import os

from model_archiver.arg_parser import ArgParser
from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_archiver_error import ModelArchiverError
from model_archiver.model_packaging_utils import ModelExportUtils, exit_on_error

__all__ = ["ArgParser", "ModelArchiver", "ModelExportUtils", "generate_model_archive", "package_model"]


class ModelArchiver:
    """The archiver as a class, as TorchServe's users call it."""

    @staticmethod
    def generate_model_archive(config: ModelArchiverConfig) -> None:
        """Writes the archive that ``config`` describes."""
        generate_model_archive(config)


def package_model(args: ModelArchiverConfig, manifest: str) -> str:
    """Checks, gathers, writes; returns where the archive is."""
    export_path = args.export_path or os.getcwd()
    ModelExportUtils.validate_inputs(args.model_name, export_path)
    ModelExportUtils.check_mar_already_exists(args.model_name, export_path, args.force, args.archive_format)
    members = ModelExportUtils.gather(args.runtime, vars(args))
    return ModelExportUtils.archive(export_path, args.model_name, members, manifest, args.archive_format)


def generate_model_archive(config: ModelArchiverConfig | None = None) -> None:
    """Writes the archive of ``config``; without one, of this process's command line."""
    given = config or ArgParser.export_model_args_parser()
    package_model(given, ModelExportUtils.generate_manifest_json(given))


if __name__ == "__main__":
    exit_on_error(generate_model_archive, ModelArchiverError)
