"""The workflow of a ``MANIFEST.json``; `model_archiver` writes the rest of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Workflow:
    """The workflow of a manifest; files are named as they are inside the archive."""

    workflow_name: str
    spec_file: str | None
    handler: str | None = None
