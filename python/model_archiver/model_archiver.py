"""The archiver as a class, as TorchServe's users call it."""

from __future__ import annotations

from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_packaging import generate_model_archive


class ModelArchiver:
    """Makes archives."""

    @staticmethod
    def generate_model_archive(config: ModelArchiverConfig) -> None:
        """Writes the archive that ``config`` describes."""
        generate_model_archive(config)
