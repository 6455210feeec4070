"""The entry point: from a command line or a configuration to an archive."""

from __future__ import annotations

import logging
import sys
from typing import Optional

from model_archiver.arg_parser import ArgParser
from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_archiver_error import ModelArchiverError
from model_archiver.model_packaging_utils import ModelExportUtils

__all__ = ["ArgParser", "ModelExportUtils", "generate_model_archive"]


def generate_model_archive(config: Optional[ModelArchiverConfig] = None) -> None:
    """Writes the archive of ``config``; without one, of this process's command line, whose complaints exit with 1."""
    if config is not None:
        ModelExportUtils.archive(config)
        return
    asked = ArgParser.export_model_args_parser()
    try:
        ModelExportUtils.archive(asked)
    except (ModelArchiverError, OSError) as error:
        logging.error("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    generate_model_archive()
