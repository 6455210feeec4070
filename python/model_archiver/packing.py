"""Gathering files and writing them in one of the archive formats; models and workflows share this.

An archive appears under its name only when it is complete.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]*")
FORMATS = {"default": ".mar", "zip-store": ".mar", "tgz": ".tar.gz", "no-archive": ""}
UNWANTED = {"__pycache__", "__MACOSX"}


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


class Members:
    """The files of an archive by their names inside it: a path for a file, bytes for what we wrote."""

    def __init__(self) -> None:
        self.files: dict[str, str | bytes] = {}

    @classmethod
    def of_directory(cls, path: str) -> Members:
        """All files of a directory by their paths in it."""
        members = cls()
        members._add_extra(path)
        return members

    def add(self, path: str | None, flag: str) -> str | None:
        """Adds the file of a flag, if it was given; returns its name inside the archive."""
        if not path:
            return None
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{flag} file not found: {path}")
        name = os.path.basename(path)
        self.files[name] = path
        return name

    def add_list(self, text: str | None) -> None:
        """Adds a comma list; a directory gives its contents."""
        for one in filter(None, map(str.strip, (text or "").split(","))):
            if os.path.exists(one):
                found = [one]
            elif glob.has_magic(one):
                found = sorted(glob.glob(one))
            else:
                raise FileNotFoundError(f"--extra-files file not found: {one}")
            for path in found:
                self._add_extra(path)

    def _add_extra(self, path: str) -> None:
        if not os.path.isdir(path):
            self.files[os.path.basename(path)] = path
            return
        for root, directories, names in os.walk(path, followlinks=True):
            directories[:] = [name for name in directories if FileRules.directory_filter(name, UNWANTED)]
            for name in names:
                inside = os.path.relpath(os.path.join(root, name), path)
                self.files[inside.replace(os.sep, "/")] = os.path.join(root, name)


def write(members: Members, path: str, name: str, archive_format: str) -> None:
    """Writes the archive to ``path``, replacing what is there."""
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=os.path.dirname(path) or ".") as scratch:
        made = os.path.join(scratch, name)
        if archive_format == "tgz":
            _write_tgz(members, made, name)
        elif archive_format == "no-archive":
            write_directory(members, made)
        else:
            stored = archive_format == "zip-store"
            _write_zip(members, made, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED)
        if os.path.isdir(path):
            shutil.rmtree(path)
        os.replace(made, path)


def _write_zip(members: Members, path: str, method: int) -> None:
    with zipfile.ZipFile(path, "w", method, strict_timestamps=False) as archive:
        for name, source in sorted(members.files.items()):
            if isinstance(source, bytes):
                archive.writestr(name, source)
            else:
                archive.write(source, name)


def _write_tgz(members: Members, path: str, top: str) -> None:
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(path, "w:gz", dereference=True) as archive:
        root = os.path.join(scratch, top)
        for name, source in sorted(members.files.items()):
            if isinstance(source, bytes):
                source = _text_file(os.path.join(root, name), source)
            archive.add(source, f"{top}/{name}", recursive=False)


def write_directory(members: Members, root: str) -> None:
    """Copies all files below a directory."""
    for name, source in sorted(members.files.items()):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(source, bytes):
            _text_file(path, source)
        else:
            shutil.copy2(source, path)


def _text_file(path: str, text: bytes) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text)
    return path
