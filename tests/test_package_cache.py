"""The Python packages that a server brings, kept in a folder between starts."""

from __future__ import annotations

from pathlib import Path

from harness.archives import Store
from harness.server import Server

HANDLER = """
import jitney

def handle(data, context):
    return None if data is None else [jitney.__file__ for _ in data]
"""


def where(server: Server) -> Path:
    """The file from which a worker has its packages."""
    return Path(server.predict("where", b"x").text)


def test_packages_stay_with_their_byte_code(start, store: Store, tmp_path: Path) -> None:
    archive = store.mar("where", source=HANDLER)
    # Python writes byte code, as it does by itself.
    env = {"JITNEY_PACKAGE_CACHE": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": ""}
    first = where(start("serve", archive, env=env))
    assert first.is_relative_to(tmp_path / "cache")
    compiled = {path: path.stat() for path in first.parent.rglob("*.pyc")}
    assert compiled
    assert where(start("serve", archive, env=env)) == first
    assert {path: path.stat().st_mtime_ns for path in compiled} == {
        path: stat.st_mtime_ns for path, stat in compiled.items()
    }


def test_packages_are_unpacked_for_one_start_where_the_folder_cannot_be_used(
    start, store: Store, tmp_path: Path
) -> None:
    archive = store.mar("where", source=HANDLER)
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    server = start("serve", archive, "--package-cache", folder)
    assert where(server).is_relative_to(server.temp)
    assert not any(folder.iterdir())
    server.logged("others can write to")
