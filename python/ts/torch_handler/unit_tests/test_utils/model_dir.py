"""Files for tests of handlers."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit


def copy_files(src_dir: Path, dst_dir: Path, files: Mapping[str, str]) -> None:
    """Copies files from one directory to another, each under its new name."""
    for name, new_name in files.items():
        shutil.copyfile(src_dir / name, dst_dir / new_name)


def download_model(model_url: str, model_dir: Path) -> None:
    """Puts a model there as `model.pt`. It is downloaded once, to where torch keeps such files."""
    import torch

    kept = Path(torch.hub.get_dir(), "checkpoints", Path(urlsplit(model_url).path).name)
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(model_url, str(kept), progress=False)
    shutil.copyfile(kept, model_dir / "model.pt")
