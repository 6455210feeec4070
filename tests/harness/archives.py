"""Model archives in every form: `.mar`, `.tar.gz`, directory. Handlers are the sources in tests/handlers."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

HANDLERS = Path(__file__).parent.parent / "handlers"


class Store:
    """A directory of archives, and the ways to put one into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)

    def mar(self, name: str, handler: str | None = None, **more: Any) -> Path:
        """A zip archive; by default of the handler with the model's name."""
        path = self.path / f"{name}.mar"
        write_zip(path, members(name, handler or name, **more))
        return path

    def tgz(self, name: str, handler: str | None = None, **more: Any) -> Path:
        """A `.tar.gz` archive, everything below one directory as TorchServe's archiver makes it."""
        path = self.path / f"{name}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for member, text in members(name, handler or name, **more).items():
                add_tar_file(archive, f"{name}/{member}", text.encode())
        return path

    def directory(self, name: str, handler: str | None = None, **more: Any) -> Path:
        """A plain directory."""
        root = self.path / name
        for member, text in members(name, handler or name, **more).items():
            file = root / member
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return root

    def war(self, name: str, spec: str, handler: str) -> str:
        """A workflow's archive; returns the file's name."""
        workflow = {"workflowName": name, "specFile": "workflow.yaml", "handler": f"{handler}.py"}
        manifest = json.dumps({"workflow": workflow})
        source = (HANDLERS / f"{handler}.py").read_text()
        files = {"WAR-INF/MANIFEST.json": manifest, "workflow.yaml": spec, f"{handler}.py": source}
        return self.zip(f"{name}.war", files).name

    def zip(self, file: str, files: dict[str, str]) -> Path:
        """A zip of exactly these members, however strange."""
        path = self.path / file
        write_zip(path, files)
        return path

    def raw(self, file: str, content: bytes) -> Path:
        """A file of exactly these bytes."""
        path = self.path / file
        path.write_bytes(content)
        return path


def members(
    name: str,
    handler: str,
    *,
    version: str = "1.0",
    source: str | None = None,
    config: str | None = None,
    entry: str = "handler.py",
    files: dict[str, str] | None = None,
) -> dict[str, str]:
    """What an archive holds, as text by member name."""
    model = {"modelName": name, "modelVersion": version, "handler": entry}
    inside = {"handler.py": source if source is not None else (HANDLERS / f"{handler}.py").read_text(), **(files or {})}
    if config is not None:
        model["configFile"] = "model-config.yaml"
        inside["model-config.yaml"] = config
    manifest = {"createdOn": "01/01/2025 00:00:00", "runtime": "python", "archiverVersion": "0.12.0", "model": model}
    return {"MAR-INF/MANIFEST.json": json.dumps(manifest), **inside}


def write_zip(path: Path, files: dict[str, str]) -> None:
    """Writes a zip of text members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in files.items():
            archive.writestr(member, text)


def add_tar_file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Adds a regular file to a tar."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))
