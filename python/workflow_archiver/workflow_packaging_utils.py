"""The steps of archiving a workflow, one method each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from model_archiver.manifest_components.manifest import manifest_json
from model_archiver.model_packaging_utils import FileRules, Members, base_name, check_name, check_overwrite, write
from workflow_archiver.version import __version__
from workflow_archiver.workflow_archiver_error import WorkflowArchiverError


@dataclass
class Workflow:
    """The workflow of a manifest; files are named as they are inside the archive."""

    workflow_name: str
    spec_file: str | None
    handler: str | None = None


class WorkflowExportUtils(FileRules):
    """The steps, for those who take them one by one."""

    @staticmethod
    def check_workflow_name_regex_or_exit(workflow_name: str) -> None:
        """Raises for a name that breaks the rule."""
        check_name(workflow_name, "workflow", WorkflowArchiverError)

    @staticmethod
    def validate_inputs(workflow_name: str, export_path: str) -> None:
        """Raises for a wrong name, and for an export path that is no directory."""
        WorkflowExportUtils.check_workflow_name_regex_or_exit(workflow_name)
        if not os.path.isdir(export_path):
            raise WorkflowArchiverError(f"--export-path is not a directory: {export_path}")

    @staticmethod
    def check_war_already_exists(workflow_name: str, export_path: str | None, overwrite: bool) -> str:
        """The directory to write to; raises if the archive exists and must not be replaced."""
        export_path = export_path or os.getcwd()
        check_overwrite(os.path.join(export_path, workflow_name + ".war"), overwrite, "it.", WorkflowArchiverError)
        return export_path

    @staticmethod
    def generate_workflow(args: Any) -> Workflow:
        """The manifest's workflow."""
        return Workflow(args.workflow_name, base_name(args.spec_file), base_name(args.handler))

    @staticmethod
    def generate_manifest_json(args: Any) -> str:
        """The manifest as text."""
        return manifest_json(__version__, workflow=WorkflowExportUtils.generate_workflow(args))

    @staticmethod
    def gather(args: Any, manifest: str) -> Members:
        """Every file of the archive, the manifest included."""
        members = Members()
        members.add(args.spec_file, "spec_file")
        members.add(args.handler, "handler")
        members.add_list(args.extra_files)
        members.files["WAR-INF/MANIFEST.json"] = manifest.encode()
        return members

    @staticmethod
    def archive(export_path: str, workflow_name: str, members: Members) -> str:
        """Writes the archive; returns where it is."""
        path = os.path.join(export_path, workflow_name + ".war")
        write(members, path, workflow_name, "default")
        return path
