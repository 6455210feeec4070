"""The model of a manifest."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass
class Model:
    """The model of a manifest."""

    model_name: str
    serialized_file: str | None
    handler: str
    model_file: str | None = None
    model_version: str | None = None
    requirements_file: str | None = None
    config_file: str | None = None

    def to_dict(self) -> dict[str, str]:
        """The entries as they are written; what is not there is left out."""
        entries = {
            "modelName": self.model_name,
            "serializedFile": self.serialized_file,
            "handler": self.handler,
            "modelFile": self.model_file,
            "modelVersion": self.model_version,
            "requirementsFile": self.requirements_file,
            "configFile": self.config_file,
        }
        return {key: value for key, value in entries.items() if value is not None}

    def __str__(self) -> str:
        return json.dumps(self.to_dict())
