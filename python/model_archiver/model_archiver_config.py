"""Everything that can be said about an archive to be."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Optional

from model_archiver.manifest_components.manifest import RuntimeType


@dataclass
class ModelArchiverConfig:
    """The flags of ``torch-model-archiver``, by their names in Python."""

    model_name: str
    handler: str
    version: str
    serialized_file: Optional[str] = None
    model_file: Optional[str] = None
    extra_files: Optional[str] = None
    runtime: str = RuntimeType.PYTHON.value
    export_path: Optional[str] = None
    archive_format: str = "default"
    force: bool = False
    requirements_file: Optional[str] = None
    config_file: Optional[str] = None

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> ModelArchiverConfig:
        """The same from a parsed command line."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})
