"""Directories that travel to nodes: the same for the same contents, within limits, removed when unused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jitney.cluster import ray_files
from jitney.cluster.ray_files import DirectoryTooLarge, NodeFiles, fingerprint, pack, sweep


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "package" / "__pycache__").mkdir(parents=True)
    (source / ".git").mkdir()
    (source / ".git" / "config").write_text("secret")
    (source / "package" / "__pycache__" / "m.pyc").write_text("old")
    (source / "package" / "m.py").write_text("X = 1\n")
    (source / "empty").mkdir()
    os.symlink(source / "package" / "m.py", source / "link.py")
    return source


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "node"
    place.mkdir()
    monkeypatch.setattr(ray_files.tempfile, "gettempdir", lambda: str(place))
    return place


def test_a_directory_arrives_as_it_was_without_what_no_model_needs(source: Path) -> None:
    digest, packed = pack(str(source))
    files = NodeFiles()
    place = Path(files.unpack(digest, lambda: packed))
    assert sorted(str(one.relative_to(place)) for one in place.rglob("*")) == [
        "empty",
        "link.py",
        "package",
        "package/m.py",
    ]
    assert (place / "link.py").read_text() == "X = 1\n"
    assert place.parent.stat().st_mode & 0o077 == 0

    def twice() -> bytes:
        raise AssertionError("it is there already")

    assert files.unpack(digest, twice) == str(place)


def test_equal_directories_have_one_hash_and_others_have_another(source: Path) -> None:
    before, seen = pack(str(source))[0], fingerprint(str(source))
    os.utime(source / "package" / "m.py", (1, 1))
    assert pack(str(source))[0] == before and fingerprint(str(source)) != seen
    (source / "package" / "m.py").write_text("X = 2\n")
    assert pack(str(source))[0] != before


def test_what_is_too_large_says_what_to_do(source: Path) -> None:
    for limits in ({"files_max": 2}, {"bytes_max": 3}):
        with pytest.raises(DirectoryTooLarge, match="ship: false"):
            pack(str(source), **limits)


def test_unused_directories_leave_and_used_ones_stay(source: Path, node: Path) -> None:
    used, unused = NodeFiles(), NodeFiles()
    kept = used.unpack(*packed_with(source, "1"))
    left = unused.unpack(*packed_with(source, "2"))
    unused.close()
    sweep(kept=0)
    assert os.path.isdir(kept) and not os.path.isdir(left)
    used.close()
    sweep(kept=1)
    assert os.path.isdir(kept)


def packed_with(source: Path, text: str):
    (source / "n.txt").write_text(text)
    digest, packed = pack(str(source))
    return digest, lambda: packed


def test_a_directory_of_somebody_else_is_not_used(node: Path) -> None:
    (node / f"jitney-ray-{os.getuid()}").mkdir(mode=0o777)
    os.chmod(node / f"jitney-ray-{os.getuid()}", 0o777)
    with pytest.raises(PermissionError, match="private"):
        NodeFiles().unpack("x", bytes)
