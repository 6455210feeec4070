"""The workflow of a manifest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Workflow:
    """The workflow of a manifest."""

    workflow_name: str
    spec_file: str | None
    handler: str | None = None

    def to_dict(self) -> dict[str, str]:
        """The entries as they are written; what is not there is left out."""
        entries = {"workflowName": self.workflow_name, "specFile": self.spec_file, "handler": self.handler}
        return {key: value for key, value in entries.items() if value is not None}
