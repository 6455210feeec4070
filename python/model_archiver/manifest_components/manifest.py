"""``MANIFEST.json`` of a model archive."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from model_archiver.manifest_components.model import Model
from model_archiver.version import __version__


class RuntimeType(Enum):
    """The language of a handler."""

    PYTHON = "python"
    PYTHON3 = "python3"
    LSP = "LSP"


class Manifest:
    """The manifest of an archive."""

    def __init__(self, runtime: str, model: Model) -> None:
        self.runtime = RuntimeType(runtime)
        self.model = model
        self.archiver_version = __version__
        self.created_on = created_on()

    def get_manifest(self) -> dict[str, Any]:
        """The manifest as it is written."""
        return {
            "createdOn": self.created_on,
            "runtime": self.runtime.value,
            "model": self.model.to_dict(),
            "archiverVersion": self.archiver_version,
        }

    def __str__(self) -> str:
        return json.dumps(self.get_manifest(), indent=2)


def created_on() -> str:
    """Now, as manifests write it: ``dd/MM/yyyy HH:mm:ss`` in UTC."""
    return datetime.now(timezone.utc).strftime("%d/%m/%Y %H:%M:%S")
