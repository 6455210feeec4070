"""The model of a manifest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Optional


@dataclass
class Model:
    """What a manifest says about its model."""

    model_name: str
    serialized_file: Optional[str]
    handler: str
    model_file: Optional[str] = None
    model_version: Optional[str] = None
    requirements_file: Optional[str] = None
    config_file: Optional[str] = None

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
