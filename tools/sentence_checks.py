"""What can check a sentence of the documents: each says what is wrong in a tree of files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rust_source import code, line_of, production_files, tracked


class Tree:
    """The files of a project, read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rust = {file: code((root / file).read_text()) for file in production_files(root)}
        self.python = {
            file: (root / file).read_text() for file in tracked(root, "python/*.py") if "/tests/" not in file
        }
        self._tests: str | None = None

    def code(self, where: str) -> Iterator[tuple[str, str]]:
        """The production files whose path starts so, and their code."""
        start = where.removesuffix("*")
        yield from ((file, text) for file, text in (self.rust | self.python).items() if file.startswith(start))

    def tests(self) -> str:
        """All Rust and Python there is, with the tests."""
        if self._tests is None:
            files = tracked(self.root, "crates/*.rs", "bench/lab/*.rs", "tests/*.py", "python/tests/*.py")
            self._tests = "\n".join((self.root / file).read_text() for file in files)
        return self._tests


@dataclass(frozen=True)
class Never:
    """Code that matches a pattern is nowhere in these files, but for those that have a reason."""

    where: str
    pattern: str
    unless: Mapping[str, str] = field(default_factory=dict)
    """The end of a path, and why this file may."""

    def problems(self, tree: Tree) -> Iterator[str]:
        """Each place, and each exception that nothing needs."""
        needed = set()
        for file, text in tree.code(self.where):
            allowed = [end for end in self.unless if file.endswith(end)]
            for found in re.finditer(self.pattern, text):
                needed.update(allowed)
                if not allowed:
                    yield f"{file}:{line_of(text, found.start())}: {found[0].strip()}"
        yield from (f"nothing needs the exception of {end}" for end in self.unless if end not in needed)


@dataclass(frozen=True)
class Tested:
    """A test of this name exists."""

    name: str

    def problems(self, tree: Tree) -> Iterator[str]:
        """One line if it is gone."""
        if not re.search(rf"\b(?:fn|def) {self.name}\(", tree.tests()):
            yield f"there is no test {self.name}"


@dataclass(frozen=True)
class Line:
    """A file of a check says this."""

    file: str
    text: str

    def problems(self, tree: Tree) -> Iterator[str]:
        """One line if it does not."""
        if self.text not in (tree.root / self.file).read_text():
            yield f"{self.file} does not say {self.text}"


@dataclass(frozen=True)
class Statics:
    """A static holds a constant, unless it has a reason here."""

    reasons: Mapping[str, str]

    def problems(self, tree: Tree) -> Iterator[str]:
        """Each static that can change, and each reason for none."""
        seen = set()
        for file, text in tree.code("crates/*"):
            for found in STATIC.finditer(text):
                if found[1] in self.reasons:
                    seen.add(found[1])
                elif CHANGES.search(found[2]) or "thread_local" in text[: found.start()].rsplit("}", 1)[-1]:
                    yield f"{file}:{line_of(text, found.start())}: static {found[1]}"
        yield from (f"there is no static {name}" for name in self.reasons if name not in seen)


@dataclass(frozen=True)
class NoSleep:
    """Tests wait for conditions: none calls sleep for a time, but for these files."""

    reasons: Mapping[str, str]

    def problems(self, tree: Tree) -> Iterator[str]:
        """Each call, and each reason for none. Models under test that take time are texts or lie below `reasons`."""
        needed = set()
        for file in tracked(tree.root, "tests/*.py", "python/tests/*.py"):
            allowed = [start for start in self.reasons if file.startswith(start)]
            for line in sleeps(ast.parse((tree.root / file).read_text())):
                needed.update(allowed)
                if not allowed:
                    yield f"{file}:{line}: sleeps"
        yield from (f"nothing sleeps in {start}" for start in self.reasons if start not in needed)


STATIC = re.compile(r"\bstatic\s+(?:mut\s+)?([A-Z][A-Z0-9_]*)\s*:\s*([^=;]+)")
SLEEP = re.compile(r"(?:time|asyncio)\.sleep\((?!0\)).*\)", re.DOTALL)
CHANGES = re.compile(r"Lock|Cell|Mutex|Atomic|MiMalloc")


def sleeps(tree: ast.Module) -> Iterator[int]:
    """The lines that sleep for a time; sleep(0) only gives way to others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and SLEEP.fullmatch(ast.unparse(node)):
            yield node.lineno


Check = Never | Tested | Line | Statics | NoSleep
