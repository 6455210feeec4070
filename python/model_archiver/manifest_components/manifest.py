"""``MANIFEST.json`` of an archive: the model or workflow in it, its runtime, who wrote it and when."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any


class RuntimeType(Enum):
    """The language of a handler."""

    PYTHON = "python"
    PYTHON3 = "python3"
    LSP = "LSP"


@dataclass
class ManifestModel:
    """The model of a manifest; files are named as they are inside the archive."""

    model_name: str
    serialized_file: str | None
    handler: str
    model_file: str | None = None
    model_version: str | None = None
    requirements_file: str | None = None
    config_file: str | None = None


def manifest_json(version: str, **entries: Any) -> str:
    """A manifest as it is written; of a model or workflow what is not there is left out."""
    written = {key: _camel_case(vars(one)) if hasattr(one, "__dict__") else one for key, one in entries.items()}
    created_on = datetime.now(timezone.utc).strftime("%d/%m/%Y %H:%M:%S")
    return json.dumps({"createdOn": created_on, **written, "archiverVersion": version}, indent=2)


def _camel_case(fields: dict[str, str | None]) -> dict[str, str]:
    words = {name: name.split("_") for name in fields}
    names = {name: first + "".join(map(str.title, rest)) for name, (first, *rest) in words.items()}
    return {names[name]: value for name, value in fields.items() if value is not None}
