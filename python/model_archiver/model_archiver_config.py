"""The configuration of an archive."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

from model_archiver.manifest_components.manifest import RuntimeType


@dataclass
class ModelArchiverConfig:
    """The flags of ``torch-model-archiver``, by their names in Python."""

    model_name: str
    handler: str
    version: str
    serialized_file: str | None = None
    model_file: str | None = None
    extra_files: str | None = None
    runtime: str = RuntimeType.PYTHON.value
    export_path: str | None = None
    archive_format: str = "default"
    force: bool = False
    requirements_file: str | None = None
    config_file: str | None = None

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> ModelArchiverConfig:
        """The same from a parsed command line."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})
