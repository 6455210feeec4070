"""A folder on a disk that all nodes share, or in a bucket: `s3://`, `gs://`, `abfs://`, whatever pyarrow opens.

A file that is written is there as a whole or not at all: on a disk it gets its name when it is complete, and a bucket
shows no object before all of it has come. Who may read and write is left to each node's own credentials.
"""

from __future__ import annotations

import os
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

WORK = "_jitney"
"""The folder of what a job notes while it runs. Readers of Parquet pass over names with an underscore."""


class StoredFile(NamedTuple):
    """A file below a location, as it was when it was listed."""

    path: str
    size: int
    modified_ns: int


class Location:
    """The folder, or a single file."""

    def __init__(self, url: str) -> None:
        self.url = _whole(url)

    def __reduce__(self) -> tuple[Any, ...]:
        return Location, (self.url,)  # Another node opens it with its own credentials.

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        from pyarrow import fs

        if "://" not in self.url:
            return fs.LocalFileSystem(), self.url
        filesystem, path = fs.FileSystem.from_uri(self.url)
        return filesystem, path.rstrip("/")

    @property
    def _on_disk(self) -> bool:
        return bool(self._opened[0].type_name == "local")

    def _at(self, path: str) -> str:
        return f"{self._opened[1]}/{path}" if path else self._opened[1]

    def files(self, below: str = "") -> list[StoredFile]:
        """All files, or those of a folder in it, sorted by their paths; a single file has the path of its name."""
        from pyarrow import fs

        filesystem, top = self._opened
        info = filesystem.get_file_info(top)
        if info.is_file:
            return [StoredFile(info.base_name, info.size, info.mtime_ns or 0)]
        selector = fs.FileSelector(self._at(below), allow_not_found=True, recursive=True)
        found = (info for info in filesystem.get_file_info(selector) if info.is_file)
        return sorted(StoredFile(info.path[len(top) + 1 :], info.size, info.mtime_ns or 0) for info in found)

    @cached_property
    def _is_file(self) -> bool:
        filesystem, top = self._opened
        return bool(filesystem.get_file_info(top).is_file)

    def open(self, path: str) -> Any:
        """A file, to be read here and there."""
        return self._opened[0].open_input_file(self._at("" if self._is_file else path))

    def read(self, path: str) -> bytes | None:
        """A small file; None if there is none."""
        try:
            with self._opened[0].open_input_stream(self._at(path)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, content: Any) -> None:
        """Writes a file, or puts another in its place, in one step."""
        if self._on_disk:
            _replace(Path(self._at(path)), Path(self._at(WORK)), content)
            return
        file = self._opened[0].open_output_stream(self._at(path))
        file.write(content)
        file.close()  # Not after an error: closing is what makes an object of the bytes.

    def clear(self, below: str = "") -> None:
        """Removes everything, or everything in a folder."""
        filesystem = self._opened[0]
        if below:
            filesystem.delete_dir(self._at(below))
        else:
            filesystem.delete_dir_contents(self._at(""), missing_dir_ok=True)

    def holds(self, other: Location) -> bool:
        """Whether another location is this one, or lies in it."""
        ours, theirs = (urlsplit(one.url)._replace(query="").geturl().rstrip("/") for one in (self, other))
        return f"{theirs}/".startswith(f"{ours}/")


def _whole(url: str) -> str:
    """A path without `..`; an address of S3 with the region and server that the environment names."""
    if "://" not in url:
        return os.path.realpath(url)
    parts = urlsplit(url)
    if parts.scheme != "s3":
        return url
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    server = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")
    added = {"region": region, "endpoint_override": server.netloc, "scheme": server.scheme}
    query = [parts.query] if parts.query else []
    query += [f"{name}={value}" for name, value in added.items() if value and f"{name}=" not in parts.query]
    return parts._replace(query="&".join(query)).geturl()


def _replace(path: Path, work: Path, content: Any) -> None:
    for folder in (path.parent, work):
        folder.mkdir(parents=True, exist_ok=True)
    beside = work / f"{uuid.uuid4().hex}.next"
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
