"""The steps of archiving a model, one method each, and below them what workflows share: rules, files, formats.

An archive appears under its name only when it is complete.
"""

from __future__ import annotations

import glob
import io
import logging
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from model_archiver.manifest_components.manifest import ManifestModel, RuntimeType, manifest_json
from model_archiver.model_archiver_error import ModelArchiverError
from model_archiver.version import __version__

STOCK = [
    "base_handler",
    "text_classifier",
    "image_classifier",
    "object_detector",
    "image_segmenter",
    "dali_image_classifier",
    "vllm_handler",
]
ABSENT = "trt_llm_handler"
INSTEAD = (
    "trt_llm_handler is not part of Jitney. Serve the model by vLLM (--handler vllm_handler), or with NVIDIA's "
    "trtllm-serve, or bring a file of your own that runs the engine: --handler my_handler.py, with "
    "asyncCommunication: true in model-config.yaml"
)
STOCK_LSP = ("BaseHandler", "TorchScriptHandler")
FORMATS = archiving_options = {"default": ".mar", "zip-store": ".mar", "tgz": ".tar.gz", "no-archive": ""}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]*")
UNWANTED = {"__pycache__", "__MACOSX"}
FILE_FLAGS = ("serialized_file", "model_file", "requirements_file", "config_file")


class FileRules:
    """Steps that models and workflows share, by TorchServe's names."""

    @staticmethod
    def directory_filter(directory: str, unwanted_dirs: Collection[str]) -> bool:
        """Whether a directory is worth packing."""
        return directory not in unwanted_dirs and not directory.startswith(".")

    @staticmethod
    def file_filter(current_file: str, files_to_exclude: Collection[str]) -> bool:
        """Whether a file is worth packing."""
        return current_file not in files_to_exclude and not current_file.endswith((".pyc", ".DS_Store"))

    @staticmethod
    def clean_temp_files(temp_files: Iterable[str]) -> None:
        """Removes files that were made only to be packed."""
        for path in temp_files:
            os.remove(path)


class Members:
    """The files of an archive by their names inside it: a path for a file, bytes for what we wrote."""

    def __init__(self) -> None:
        self.files: dict[str, str | bytes] = {}

    def add(self, path: str | None, flag: str) -> None:
        """Adds the file of a flag, if it was given."""
        if path and not os.path.isfile(path):
            raise FileNotFoundError(f"--{flag.replace('_', '-')} file not found: {path}")
        if path:
            self.files[os.path.basename(path)] = path

    def add_list(self, text: str | None) -> None:
        """Adds a comma list; a directory gives its contents."""
        for one in filter(None, map(str.strip, (text or "").split(","))):
            if not os.path.exists(one) and not glob.has_magic(one):
                raise FileNotFoundError(f"--extra-files file not found: {one}")
            for path in [one] if os.path.exists(one) else sorted(glob.glob(one)):
                self.add_path(path)

    def add_path(self, path: str) -> None:
        """Adds a file, or all files of a directory by their paths in it."""
        if not os.path.isdir(path):
            self.files[os.path.basename(path)] = path
            return
        for root, directories, names in os.walk(path, followlinks=True):
            directories[:] = [name for name in directories if FileRules.directory_filter(name, UNWANTED)]
            for name in names:
                inside = os.path.relpath(os.path.join(root, name), path)
                self.files[inside.replace(os.sep, "/")] = os.path.join(root, name)


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
        if path == ABSENT:
            raise ModelArchiverError(INSTEAD)
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
    def generate_model(modelargs: Any) -> ManifestModel:
        """The manifest's model."""
        weights, code, requirements, config = (base_name(getattr(modelargs, flag, None)) for flag in FILE_FLAGS)
        handler = os.path.basename(modelargs.handler)
        return ManifestModel(modelargs.model_name, weights, handler, code, modelargs.version, requirements, config)

    @staticmethod
    def generate_manifest_json(args: Any) -> str:
        """The manifest as text."""
        runtime = RuntimeType(args.runtime).value
        return manifest_json(__version__, runtime=runtime, model=ModelExportUtils.generate_model(args))

    @staticmethod
    def gather(runtime: str, files: Mapping[str, Any]) -> Members:
        """Every file of the archive but the manifest, from files by flag."""
        members = Members()
        for flag in FILE_FLAGS:
            members.add(files.get(flag), flag)
        if files.get("handler"):
            members.add(ModelExportUtils.handler_file(files["handler"], runtime), "handler")
        members.add_list(files.get("extra_files"))
        return members

    @staticmethod
    def copy_artifacts(model_name: str, runtime: str, **files: str | None) -> str:
        """A new directory with copies of these files, named by flag, as `archive` packs it.

        TorchServe's own archiver says `requirements-file` here, and an underscore everywhere else.
        """
        model_path = os.path.join(tempfile.mkdtemp(), model_name)
        os.makedirs(model_path)
        by_flag = {name.replace("-", "_"): path for name, path in files.items()}
        write_directory(ModelExportUtils.gather(runtime, by_flag), model_path)
        return model_path

    @staticmethod
    def archive(
        export_file: str, model_name: str, model_path: str | Members, manifest: str, archive_format: str = "default"
    ) -> str:
        """Writes the archive of a directory's files, or of files wherever they are; returns where it is."""
        members = model_path if isinstance(model_path, Members) else Members()
        if isinstance(model_path, str):
            members.add_path(model_path)
        members.files["MAR-INF/MANIFEST.json"] = manifest.encode()
        path = ModelExportUtils.get_archive_export_path(export_file, model_name, archive_format)
        os.makedirs(export_file, exist_ok=True)
        write(members, path, model_name, archive_format)
        return path


def base_name(path: str | None) -> str | None:
    """How a file is named inside the archive."""
    return os.path.basename(path) if path else None


def check_name(name: str, kind: str, error: type[Exception]) -> None:
    """Raises for a name that breaks the rule."""
    if not NAME.fullmatch(name):
        raise error(f"{name!r} cannot be a {kind} name; it must match ^{NAME.pattern}$")


def check_overwrite(path: str, overwrite: bool, hint: str, error: type[Exception]) -> None:
    """Raises if the archive exists and must not be replaced."""
    if os.path.exists(path):
        if not overwrite:
            raise error(f"{path} already exists.\nPlease specify --force/-f option to overwrite {hint}")
        logging.warning("Overwriting %s ...", path)


def exit_on_error(package: Callable[[], object], error: type[Exception]) -> None:
    """Runs a command; its errors are logged and end the process with status 1."""
    try:
        package()
    except (error, OSError) as reason:
        logging.error("%s", reason)
        sys.exit(1)


def write(members: Members, path: str, name: str, archive_format: str) -> None:
    """Writes the archive to ``path``, replacing what is there."""
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=os.path.dirname(path) or ".") as scratch:
        made = os.path.join(scratch, name)
        if archive_format == "tgz":
            _write_tgz(members, made, name)
        elif archive_format == "no-archive":
            write_directory(members, made)
        else:
            _write_zip(members, made, zipfile.ZIP_STORED if archive_format == "zip-store" else zipfile.ZIP_DEFLATED)
        if os.path.isdir(path):
            shutil.rmtree(path)
        os.replace(made, path)


def _write_zip(members: Members, path: str, method: int) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, source in sorted(members.files.items()):
            if isinstance(source, bytes):
                archive.writestr(name, source)
                continue
            entry = zipfile.ZipInfo.from_file(source, name, strict_timestamps=False)
            entry.compress_type = archive.compression
            with open(source, "rb") as file, archive.open(entry, "w") as packed:
                shutil.copyfileobj(file, packed, 1 << 20)


def _write_tgz(members: Members, path: str, top: str) -> None:
    with tarfile.open(path, "w:gz", dereference=True) as archive:
        for name, source in sorted(members.files.items()):
            if isinstance(source, bytes):
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size, entry.mtime = len(source), int(time.time())
                archive.addfile(entry, io.BytesIO(source))
            else:
                archive.add(source, f"{top}/{name}", recursive=False)


def write_directory(members: Members, root: str) -> None:
    """Copies all files below a directory."""
    for name, source in sorted(members.files.items()):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(source, bytes):
            with open(path, "wb") as file:
                file.write(source)
        else:
            shutil.copy2(source, path)
