"""TorchServe's workflow archiver as a library: ``jitney archive-workflow`` in pure Python."""

from workflow_archiver.version import __version__
from workflow_archiver.workflow_packaging import WorkflowArchiver, WorkflowArchiverConfig

__all__ = ["WorkflowArchiver", "WorkflowArchiverConfig", "__version__"]
