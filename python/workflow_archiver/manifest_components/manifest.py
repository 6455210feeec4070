"""``MANIFEST.json`` of a workflow archive."""

from __future__ import annotations

import json
from typing import Any

from model_archiver.manifest_components.manifest import created_on
from workflow_archiver.manifest_components.workflow import Workflow
from workflow_archiver.version import __version__


class Manifest:
    """The manifest of a workflow archive."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.archiver_version = __version__
        self.created_on = created_on()

    def get_manifest(self) -> dict[str, Any]:
        """The manifest as it is written."""
        return {
            "createdOn": self.created_on,
            "workflow": self.workflow.to_dict(),
            "archiverVersion": self.archiver_version,
        }

    def __str__(self) -> str:
        return json.dumps(self.get_manifest(), indent=2)
