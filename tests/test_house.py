"""The arrows and manners of the house, checked on the tree itself: who may depend on whom, how files open."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

ARROWS = {
    ("jitney-cli", "jitney-onnx"),
    ("jitney-cli", "jitney-server"),
    ("jitney-cli", "jitney-engine"),
    ("jitney-cli", "jitney-store"),
    ("jitney-cli", "jitney-settings"),
    ("jitney-cli", "jitney-sim"),
    ("jitney-sim", "jitney-batcher"),
    ("jitney-onnx", "jitney-engine"),
    ("jitney-server", "jitney-engine"),
    ("jitney-server", "jitney-proto"),
    ("jitney-server", "jitney-settings"),
    ("jitney-engine", "jitney-batcher"),
    ("jitney-engine", "jitney-store"),
    ("jitney-engine", "jitney-settings"),
    ("jitney-store", "jitney-settings"),
}

ROOMS = {
    "hyper": "jitney-server",
    "hyper-util": "jitney-server",
    "http": "jitney-server",
    "http-body-util": "jitney-server",
    "multer": "jitney-server",
    "rten": "jitney-onnx",
    "rten-tensor": "jitney-onnx",
    "zip": "jitney-store and jitney-cli",
    "tar": "jitney-store and jitney-cli",
    "clap": "jitney-cli",
    "reqwest": "jitney-cli",
    "object_store": "jitney-cli",
    "tokio-rustls": "jitney-server",
    "java-properties": "jitney-cli",
    "tracing-subscriber": "jitney-cli",
}
"""Libraries that belong to their rooms; used elsewhere they would carry its business with them. Archives are read in
one room and packed in another."""

NOT_OURS = {".git", "target", ".venv", ".venv-torch", ".venv-torch-new", "out", "node_modules", "__pycache__"}


def files(*endings: str) -> Iterator[Path]:
    """The project's own files; what tools leave behind has a dot or is named above."""
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.is_dir() and not path.is_symlink():
                if path.name not in NOT_OURS and not path.name.endswith("_cache"):
                    pending.append(path)
            elif path.is_file() and path.name.endswith(endings):
                yield path


@pytest.fixture(scope="module")
def packages() -> dict[str, list[dict]]:
    """The dependencies of every crate, by the crate's name."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    metadata = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return {package["name"]: package["dependencies"] for package in json.loads(metadata)["packages"]}


def test_the_batcher_depends_on_nobody(packages: dict[str, list[dict]]) -> None:
    needed = [each["name"] for each in packages["jitney-batcher"] if each["kind"] != "dev"]
    assert needed == []


def test_arrows_point_one_way(packages: dict[str, list[dict]]) -> None:
    def needs(needed: list[dict]) -> Iterator[str]:
        return (each["name"] for each in needed if each["name"] in packages and each["kind"] != "dev")

    found = {(name, each) for name, needed in packages.items() for each in needs(needed)}
    assert found <= ARROWS, f"new arrows need a decision record: {found - ARROWS}"


@pytest.mark.parametrize("library", ROOMS)
def test_a_library_stays_in_its_room(packages: dict[str, list[dict]], library: str) -> None:
    users = {name for name, needed in packages.items() for each in needed if each["name"] == library}
    assert users <= set(ROOMS[library].split(" and ")), f"{library} is used by {users}"


def test_every_rust_file_says_what_it_is_for() -> None:
    mute = [str(path.relative_to(ROOT)) for path in files(".rs") if not path.read_text().startswith("//!")]
    assert mute == []


def test_every_python_file_says_what_it_is_for() -> None:
    mute = [str(path.relative_to(ROOT)) for path in files(".py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert mute == []


def test_the_architecture_names_every_crate(packages: dict[str, list[dict]]) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = [name for name in packages if f"crates/{name.removeprefix('jitney-')}" not in text]
    assert missing == []


@pytest.mark.parametrize("place", ["/work" + "/main", "/work" + "/shared", "/tmp" + "/jt"])
def test_no_file_knows_the_machine_it_was_written_on(place: str) -> None:
    found = [str(path.relative_to(ROOT)) for path in files("") if place.encode() in path.read_bytes()]
    assert found == []


def test_every_handler_of_the_tests_is_used() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").glob("*.py"))
    unused = [path.stem for path in (ROOT / "tests" / "handlers").glob("*.py") if f'"{path.stem}"' not in sources]
    assert unused == []
