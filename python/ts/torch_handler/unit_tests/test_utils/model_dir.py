"""Files for tests of handlers."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Mapping
from pathlib import Path


def copy_files(src_dir: Path, dst_dir: Path, files: Mapping[str, str]) -> None:
    """Copies files from one directory to another, each under its new name."""
    for name, new_name in files.items():
        shutil.copyfile(src_dir / name, dst_dir / new_name)


def download_model(model_url: str, model_dir: Path) -> None:
    """Downloads a model as `model.pt`."""
    urllib.request.urlretrieve(model_url, model_dir / "model.pt")
