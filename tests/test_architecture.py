"""What every file of the project must have, and what none may have, checked on the tree itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

NOT_OURS = {".git", "target", ".tools", "out", "node_modules", "__pycache__"}


def files(*endings: str) -> Iterator[Path]:
    """The project's own files; what tools leave behind is named above, or the environments (.venv)."""
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.is_dir() and not path.is_symlink():
                if path.name not in NOT_OURS and not path.name.startswith(".venv") and not path.name.endswith("_cache"):
                    pending.append(path)
            elif path.is_file() and path.name.endswith(endings) and path.name not in NOT_OURS:
                yield path


def test_every_rust_file_has_module_docs() -> None:
    without = [str(path.relative_to(ROOT)) for path in files(".rs") if not path.read_text().startswith("//!")]
    assert without == []


def test_every_python_file_has_a_docstring() -> None:
    without = [
        str(path.relative_to(ROOT)) for path in files(".py") if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert without == []


def test_the_architecture_names_every_crate() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = [path.name for path in (ROOT / "crates").iterdir() if f"crates/{path.name}" not in text]
    assert missing == []


@pytest.mark.parametrize("path_of_a_machine", ["/work" + "/main", "/work" + "/shared", "/tmp" + "/jt"])
def test_no_file_names_a_path_of_one_machine(path_of_a_machine: str) -> None:
    found = [str(path.relative_to(ROOT)) for path in files("") if path_of_a_machine.encode() in path.read_bytes()]
    assert found == []


def test_examples_of_documents_are_tested() -> None:
    """`make test-rust` tries those of the crates that DOC_TESTED names: no other has any."""
    (tested,) = re.findall(r"^DOC_TESTED := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for path in files(".rs"):
        package = "jitney-" + path.relative_to(ROOT).parts[1]
        fences = re.findall(r"^ *//[/!] ```(.*)$", path.read_text(), re.MULTILINE)
        if set(fences[::2]) & {"", "rust", "no_run", "should_panic"}:
            assert package in tested, f"{path}: name {package} in DOC_TESTED"


def test_the_lock_names_the_public_index_only() -> None:
    """What uv finds on one machine may lie elsewhere, or nowhere, on another."""
    lock = (ROOT / "tests/uv.lock").read_text()
    hosts = set(re.findall(r"\w+://([^/\"]+)", lock))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}
    assert "path = " not in lock


def test_every_handler_of_the_tests_is_used() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").glob("*.py"))
    unused = [path.stem for path in (ROOT / "tests" / "handlers").glob("*.py") if f'"{path.stem}"' not in sources]
    assert unused == []


def test_the_version_is_the_same_everywhere() -> None:
    [version] = re.findall(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    said = {
        "pyproject.toml": f'version = "{version}"',
        "python/torchserve-compat/pyproject.toml": f'version = "{version}"',
        "python/jitney/__init__.py": f'__version__ = "{version}"',
        "Dockerfile": f"ARG VERSION={version}\n",
        "deploy/kubernetes/jitney.yaml": f"image: jitney:{version}\n",
        "deploy/kubernetes/replicas.yaml": f"image: jitney:{version}\n",
        "deploy/kserve/runtimes.yaml": f"image: jitney:{version}\n",
        "docs/guides/install.md": f"jitney-{version}-x86_64-linux-static",
        "CHANGELOG.md": f"\n## {version} - ",
    }
    assert [file for file, text in said.items() if text not in (ROOT / file).read_text()] == []


def test_an_entry_of_the_changelog_is_there_once() -> None:
    for version in (ROOT / "CHANGELOG.md").read_text().split("\n## "):
        entries = [line.lower().replace("*", "")[:30] for line in version.splitlines() if line.startswith("- ")]
        assert [entry for entry in set(entries) if entries.count(entry) > 1] == []
