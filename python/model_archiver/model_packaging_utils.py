"""The steps of archiving a model, one method each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from typing import Any

from model_archiver.manifest_components.manifest import Manifest, RuntimeType
from model_archiver.manifest_components.model import Model
from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_archiver_error import ModelArchiverError
from model_archiver.packing import FORMATS, FileRules, Members, check_name, check_overwrite, write, write_directory

STOCK = {
    "base_handler",
    "text_classifier",
    "image_classifier",
    "object_detector",
    "image_segmenter",
    "dali_image_classifier",
    "vllm_handler",
    "trt_llm_handler",
}
STOCK_LSP = {"BaseHandler", "TorchScriptHandler"}
archiving_options = FORMATS


class ModelExportUtils(FileRules):
    """The steps, for those who take them one by one."""

    @staticmethod
    def check_model_name_regex_or_exit(model_name: str) -> None:
        """Raises for a name that breaks the rule."""
        check_name(model_name, "model", ModelArchiverError)

    @staticmethod
    def validate_inputs(model_name: str, export_path: str) -> None:
        """Raises for a wrong name, and for an export path that is no directory."""
        ModelExportUtils.check_model_name_regex_or_exit(model_name)
        if os.path.exists(export_path) and not os.path.isdir(export_path):
            raise ModelArchiverError(f"--export-path is not a directory: {export_path}")

    @staticmethod
    def get_archive_export_path(export_path: str, model_name: str, archive_format: str = "default") -> str:
        """Where the archive will be."""
        if archive_format not in FORMATS:
            raise ModelArchiverError(f"unknown archive format {archive_format!r}; known: {', '.join(FORMATS)}")
        return os.path.join(export_path, model_name + FORMATS[archive_format])

    @staticmethod
    def check_mar_already_exists(
        model_name: str, export_path: str | None, overwrite: bool, archive_format: str = "default"
    ) -> str:
        """The directory to write to; raises if the archive exists and must not be replaced."""
        export_path = export_path or os.getcwd()
        path = ModelExportUtils.get_archive_export_path(export_path, model_name, archive_format)
        hint = "the model archive output file.\nSee -h/--help for more details."
        check_overwrite(path, overwrite, hint, ModelArchiverError)
        return export_path

    @staticmethod
    def handler_file(handler: str, runtime: str) -> str | None:
        """The file a handler names; none for a stock one."""
        lsp = runtime == RuntimeType.LSP.value
        path = handler.split(":")[0]
        if path in (STOCK_LSP if lsp else STOCK):
            return None
        endings = (".so", ".dylib") if lsp else (".py",)
        if path.endswith(endings):
            return path
        found = [path + ending for ending in endings if os.path.isfile(path + ending)]
        return (found or [path + endings[0]])[0]

    @staticmethod
    def find_unique(files: Iterable[str], suffix: str) -> str | None:
        """The file with an ending, or None; raises for several."""
        found = [file for file in files if file.endswith(suffix)]
        if len(found) > 1:
            raise ModelArchiverError(f"more than one file ends in {suffix}: {', '.join(found)}. Please keep one.")
        return found[0] if found else None

    @staticmethod
    def generate_model(modelargs: Any) -> Model:
        """The manifest's model; files are named as they are inside the archive."""

        def base(flag: str) -> str | None:
            path = getattr(modelargs, flag, None)
            return os.path.basename(path) if path else None

        return Model(
            modelargs.model_name, base("serialized_file"), os.path.basename(modelargs.handler), base("model_file"),
            modelargs.version, base("requirements_file"), base("config_file"),
        )  # fmt: skip

    @staticmethod
    def generate_manifest_json(args: Any) -> str:
        """The manifest as text."""
        return str(Manifest(args.runtime, ModelExportUtils.generate_model(args)))

    @staticmethod
    def gather(config: ModelArchiverConfig) -> Members:
        """Every file of the archive but the manifest."""
        members = Members()
        for flag in ("serialized_file", "model_file", "requirements_file", "config_file"):
            members.add(getattr(config, flag), "--" + flag.replace("_", "-"))
        members.add(ModelExportUtils.handler_file(config.handler, config.runtime), "--handler")
        members.add_list(config.extra_files)
        return members

    @staticmethod
    def copy_artifacts(model_name: str, runtime: str, **files: str | None) -> str:
        """A new directory with copies of these files, named by flag, as `archive` packs it."""
        members = Members()
        for flag, path in files.items():
            if path and flag == "handler":
                path = ModelExportUtils.handler_file(path, runtime)
            if flag == "extra_files":
                members.add_list(path)
            else:
                members.add(path, "--" + flag.replace("_", "-"))
        model_path = os.path.join(tempfile.mkdtemp(), model_name)
        os.makedirs(model_path)
        write_directory(members, model_path)
        return model_path

    @staticmethod
    def archive(
        export_file: str, model_name: str, model_path: str | Members, manifest: str, archive_format: str = "default"
    ) -> str:
        """Writes the archive of a directory's files, or of files wherever they are; returns where it is."""
        members = model_path if isinstance(model_path, Members) else Members.of_directory(model_path)
        members.files["MAR-INF/MANIFEST.json"] = manifest.encode()
        path = ModelExportUtils.get_archive_export_path(export_file, model_name, archive_format)
        os.makedirs(export_file, exist_ok=True)
        write(members, path, model_name, archive_format)
        return path
