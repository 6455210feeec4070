"""TorchServe's model archiver as a library: ``jitney archive`` in pure Python, with the original import names.

The names are those that upstream's scripts and tests import; what writes an archive is in `model_packaging_utils`.
"""

from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_packaging import ModelArchiver
from model_archiver.version import __version__

__all__ = ["ModelArchiver", "ModelArchiverConfig", "__version__"]
