"""TorchServe's model archiver as a library: ``jitney archive`` in pure Python, with the original import names."""

from model_archiver.model_archiver import ModelArchiver
from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.version import __version__

__all__ = ["ModelArchiver", "ModelArchiverConfig", "__version__"]
