"""The file of a model: itself, or the only one of its folder, told by its ending and its first bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

HEAD_BYTES = 4096


def lone_file(path: Path, endings: Sequence[str], begins: Callable[[bytes], bool] = lambda head: True) -> Path | None:
    """The file, or the only one of a folder that ends and begins like this, as KServe mounts them; None if there is no
    such file, or are several."""
    files = [path] if path.is_file() else [one for one in path.iterdir() if one.is_file()]
    found = [one for one in files if one.suffix.lower() in endings and begins(_head(one))]
    return found[0] if len(found) == 1 else None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)
