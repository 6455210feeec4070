"""Directories that travel to the nodes of a Ray cluster: packed once for what they hold, unpacked once on each node.

A directory is known by a hash of its packed bytes, so that equal ones travel once, whatever their path. On a node they
lie in a private directory; those that nothing uses any more are removed by whoever unpacks the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any

FILES_MAX = 20_000
BYTES_MAX = 2 << 30
"""What one directory may hold; it is in memory while it travels."""
LEFT_OUT = frozenset(("__pycache__", ".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".mypy_cache",
                      ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".tox"))  # fmt: skip
"""Directories that no model needs."""
UNUSED_KEPT = 8
"""Directories that stay on a node although nothing uses them, for the next worker that needs them."""


class DirectoryTooLarge(ValueError):
    """A directory holds more than may travel."""


def pack(directory: str, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> tuple[str, bytes]:
    """The hash and the packed bytes of a directory."""
    out = io.BytesIO()
    total = 0
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for count, (path, name) in enumerate(walk(directory)):
            info = archive.gettarinfo(path, name)
            total += info.size
            if count >= files_max or total > bytes_max:
                raise DirectoryTooLarge(
                    f"{directory} has more than {files_max:,} files or {bytes_max >> 20:,} MiB, which is too much to "
                    "send to the nodes: serve from a directory with nothing but the model, or put it under the same "
                    "path on every node and set ray: {ship: false}"
                )
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 0
            if info.isreg():
                with open(path, "rb") as file:
                    archive.addfile(info, file)
            elif info.isdir():
                archive.addfile(info)
    packed = out.getvalue()
    return hashlib.sha256(packed).hexdigest()[:32], packed


def fingerprint(directory: str) -> str:
    """What changes with the files of a directory, found without reading them."""
    seen = hashlib.sha256(directory.encode())
    for path, name in walk(directory):
        found = os.stat(path)
        seen.update(f"{name}\0{found.st_mode}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return seen.hexdigest()


def walk(directory: str) -> Iterator[tuple[str, str]]:
    """Every file and directory below one, sorted, with its name from there; links are what they lead to."""
    for root, directories, files in os.walk(directory, followlinks=True):
        directories[:] = sorted(name for name in directories if name not in LEFT_OUT)
        for name in [*directories, *sorted(files)]:
            path = os.path.join(root, name)
            real = os.path.realpath(path)
            if os.path.isfile(real) or os.path.isdir(real):
                yield real, os.path.relpath(path, directory)


def home() -> str:
    """The private directory of this user on this node."""
    path = os.path.join(tempfile.gettempdir(), f"jitney-ray-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private directory of this user; remove it")
    return path


class NodeFiles:
    """The directories that a worker uses on its node; they stay as long as this object is open."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def unpack(self, digest: str, packed: Any) -> str:
        """The path of the directory with this hash; `packed()` brings its bytes where it is not there yet."""
        place = os.path.join(home(), digest)
        self._held.append(lock_shared(place + ".lock"))
        if not os.path.isdir(place):
            self._unpack(place, packed())
        os.utime(place + ".lock")
        return place

    @staticmethod
    def _unpack(place: str, packed: bytes) -> None:
        """Another worker may do the same at the same time: whoever is first wins."""
        fresh = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(place))
        try:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                if hasattr(tarfile, "data_filter"):
                    archive.extractall(fresh, filter="data")
                else:
                    archive.extractall(fresh)
            os.rename(fresh, place)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            if not os.path.isdir(place):
                raise

    def close(self) -> None:
        """Lets go of the directories, and removes those that nobody has used for longest."""
        for lock in self._held:
            lock.close()
        self._held.clear()
        with contextlib.suppress(OSError):
            sweep()


def lock_shared(path: str) -> Any:
    """An open file that keeps a directory from being removed; any number of workers may hold it."""
    while True:
        lock = open(path, "a")  # noqa: SIM115 - held until the worker ends
        fcntl.flock(lock, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(path)):
                return lock
        lock.close()  # It was removed in this very moment.


def sweep(kept: int = UNUSED_KEPT) -> None:
    """Removes unused directories but for those that were used last."""
    base = home()
    locks = [os.path.join(base, name) for name in os.listdir(base) if name.endswith(".lock")]
    locks.sort(key=os.path.getmtime, reverse=True)
    for path in locks[kept:]:
        with contextlib.suppress(OSError), open(path, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
            shutil.rmtree(path[: -len(".lock")], ignore_errors=True)
