"""Where compiled models are kept: a directory of the model store, so that a model is compiled once.

What was compiled fits one version of torch and one kind of GPU, so these have directories of their own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FILES_MAX = 64
"""Of more compiled files the oldest are removed."""
ENDING = ".compiled"


class CompileCache:
    """A directory for what one archive's model was compiled to, for the torch and the GPU of this process."""

    def __init__(self, path: str, machine: str) -> None:
        self.path = Path(path) / machine

    def use(self) -> None:
        """Makes torch keep here what it compiles on the way; works before it has compiled anything."""
        self.path.mkdir(parents=True, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.path / "inductor")
        os.environ["TRITON_CACHE_DIR"] = str(self.path / "triton")

    def file(self, parts: Iterable[str]) -> Path:
        """The file of what is compiled from such parts."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part.encode() + b"\0")
        return self.path / (digest.hexdigest()[:32] + ENDING)

    @contextlib.contextmanager
    def alone(self, file: Path) -> Iterator[None]:
        """Inside, no other worker makes this file; who waited finds it made."""
        with open(file.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def trim(self) -> None:
        """Removes the oldest files where there are too many."""
        files = sorted(self.path.glob("*" + ENDING), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in files[FILES_MAX:]:
            for one in (file, file.with_suffix(".json"), file.with_suffix(".lock")):
                one.unlink(missing_ok=True)


def machine_of(device: Any) -> str:
    """The name of what a model is compiled for."""
    torch = importlib.import_module("torch")
    name = torch.cuda.get_device_name(device) if getattr(device, "type", None) == "cuda" else "cpu"
    return re.sub(r"[^A-Za-z0-9.+]+", "-", f"torch-{torch.__version__}-{name}").lower()


def sources_of(model_dir: str) -> Iterator[str]:
    """What tells one model's code from another's: its Python files, and how large the others are."""
    for path in sorted(Path(model_dir).rglob("*")):
        if path.is_file() and path.suffix == ".py":
            yield f"{path.relative_to(model_dir)} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        elif path.is_file() and path.suffix in (".pt2", ".pt", ".pth", ".safetensors"):
            yield f"{path.relative_to(model_dir)} {path.stat().st_size}"
