"""The pages of the documentation as text: their navigation, links, headings and code blocks.

docs/README.md is the index on a code host and the navigation of the site at once: each `## ` heading is a section, and
each list entry that begins with a link is a page of it. A page called README.md in a folder below lists the pages of
that folder in the same way. Only the standard library is used, so that the fast tests need nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"

FENCE = re.compile(r"^( *)(`{3,})([^`\n]*)\n(.*?)^ *\2`*[ \t]*$", re.MULTILINE | re.DOTALL)
INFO = re.compile(r'([\w-]+)(?:=(?:"([^"]*)"|(\S+)))?')
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^()\s]+)\)")
ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)

LANGUAGES = {
    "bash": "commands: run",
    "console": "commands after `$ ` and what they print: run and compared",
    "python": "a file if its first line is `# NAME.py`, else a program: run",
    "javascript": "only looked at",
    "yaml": "parsed",
    "json": "parsed",
    "toml": "parsed",
    "properties": "parsed",
    "ini": "parsed",
    "text": "not looked at",
    "pbtxt": "not looked at",
    "promql": "not looked at",
    "dockerfile": "not looked at",
}
"""What a code block may be, and what `make test-docs` does with it."""

OPTIONS = {
    "title": "a heading, such as the product whose code this is",
    "file": "the name under which the block is written to a file before anything runs",
    "other": "code of another product: only its syntax is checked",
    "no-run": "why it cannot be run here: only its syntax is checked",
    "output": "what the block before it prints; ... stands for anything",
    "continues": "goes on where the program before it ended",
    "exit": "the exit code of these commands, if not 0; their output is then what they write to stderr",
    "unready": "the server that is started here does not become ready",
}
"""The words that may follow the language."""


@dataclass(frozen=True)
class Block:
    """A fenced code block: "```LANGUAGE word name="value"" and what follows."""

    page: Path
    line: int
    language: str
    options: dict[str, str]
    text: str

    @property
    def where(self) -> str:
        """The place as a compiler would write it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name under which it is to be written, by its option or by its first line."""
        named = re.match(r"# ([\w./-]+\.\w+)(?:,.*)?\n", self.text)
        return self.options.get("file") or (named[1] if named else None)

    @property
    def runs(self) -> bool:
        """Whether it is run: commands and programs that are neither another product's nor marked, and no files."""
        marked = {"other", "no-run", "output"} & set(self.options)
        return self.language in ("bash", "console", "python") and not marked and not self.file


def pages() -> list[Path]:
    """All pages below docs/."""
    return sorted(DOCS.rglob("*.md"))


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page, in order."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        indent, _, info, body = found.groups()
        language, _, rest = info.strip().partition(" ")
        lines = [line.removeprefix(indent) for line in body.splitlines(keepends=True)]
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, language, options(rest), "".join(lines))


def options(text: str) -> dict[str, str]:
    """The words that follow a block's language."""
    return {name: quoted or bare for name, quoted, bare in INFO.findall(text)}


def prose(text: str) -> str:
    """The same text with code blanked out: line numbers stay."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    return CODE.sub(blank, FENCE.sub(blank, text))


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Line and target of every link of a page that leads to a file or a heading here."""
    text = prose(page.read_text())
    for found in LINK.finditer(text):
        if "://" not in found[2] and not found[2].startswith("mailto:"):
            yield text.count("\n", 0, found.start()) + 1, found[2]


def target(page: Path, link: str) -> Path:
    """The file or folder that a link leads to."""
    file = link.partition("#")[0]
    return Path(os.path.normpath(page.parent / file)) if file else page


def anchors(page: Path) -> set[str]:
    """The anchors that a code host gives the headings of a page."""
    found: dict[str, int] = {}
    text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text())
    for heading in HEADING.findall(text):
        name = anchor(heading)
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return set(found)


def anchor(heading: str) -> str:
    """The anchor of a heading: lower case, no punctuation, a dash for each space."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def entries(index: Path) -> Iterator[tuple[str, Path]]:
    """Title and file of each page that an index lists."""
    for line in index.read_text().splitlines():
        if found := ENTRY.match(line):
            yield found[1], target(index, found[2])


def sections(index: Path = INDEX) -> dict[str, list[tuple[str, Path]]]:
    """The sections of an index, each with titles and files; entries before the first heading have no section's name."""
    found: dict[str, list[tuple[str, Path]]] = {"": []}
    for line in index.read_text().splitlines():
        if line.startswith("## "):
            found[line[3:].strip()] = []
        elif entry := ENTRY.match(line):
            list(found.values())[-1].append((entry[1], target(index, entry[2])))
    return found if found[""] else {title: listed for title, listed in found.items() if title}


def in_navigation() -> set[Path]:
    """Every file that the index, or the index of a folder, lists."""
    found = {INDEX}
    for listed in sections().values():
        for _, page in listed:
            found.add(page)
            if page.name == "README.md" and page.is_relative_to(DOCS):
                found.update(below for _, below in entries(page))
    return found
