"""Fails where a sentence that the documents promise is not true, or where nothing checks it.

Each sentence below "Rules" in ARCHITECTURE.md, and each that README promises, stands in `sentences` with what checks
it: code that must not be written somewhere, a test that exists, or a line of another check. A sentence without an entry
fails, and so does an entry whose sentence is gone or whose exception is no longer needed. Sentences of other documents
stand there as well.

Pages and comments name files (`crates/load/src/lib.rs`) and modules (`engine::model`): each of them must exist.

    python tools/check_sentences.py [DIRECTORY]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rust_source import ROOT, line_of, production_files, tracked
from sentence_checks import Check, Tree
from sentences import PROMISES, RULES, SENTENCES

HEADINGS = {RULES: "## Rules", PROMISES: "## What it promises"}
"""Lists of which every sentence is checked."""


def plain(text: str) -> str:
    """A document without the marks of comments, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"^\s*//!", " ", text, flags=re.MULTILINE))


def rules(document: str, heading: str) -> list[str]:
    """The sentences of the list below the heading; the name in front of a rule is no part of its first sentence."""
    section = document.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    items = re.findall(r"^- (.*(?:\n  .*)*)", section, flags=re.MULTILINE)
    bare = [re.sub(r"^\*\*[^*]+\*\*:\s*", "", plain(item)) for item in items]
    return [
        sentence.strip() for item in bare for sentence in re.split(r"(?<=[.;]) (?=[A-Z`])", item) if sentence.strip()
    ]


def problems(root: Path, sentences: dict[str, dict[str, tuple[Check, ...]]] = SENTENCES) -> Iterator[str]:
    """What is not true, what nothing checks, and what nobody says any more."""
    tree = Tree(root)
    for document, checked in sentences.items():
        text = plain((root / document).read_text())
        for sentence, checks in checked.items():
            if sentence not in text:
                yield f"{document} no longer says: {sentence}"
            yield from (f"{document}: {sentence}\n  {found}" for check in checks for found in check.problems(tree))
    for document in HEADINGS.keys() & sentences.keys():
        for sentence in rules((root / document).read_text(), HEADINGS[document]):
            if sentence not in sentences[document]:
                yield f"{document}: nothing checks this: {sentence}"


PATH = re.compile(
    r"(?<![\w/.:-])((?:bench|crates|deploy|docs|examples|fuzz|protocol|python|tests|tools|ui)/[\w./-]*\w)"
)
MODULE = re.compile(r"`(\w+)::([a-z]\w*(?:::[a-z]\w*)*)")
HISTORY = ("CHANGELOG.md", "tools/walks.md")
"""Pages that say how things were."""


def lost_names(root: Path) -> Iterator[str]:
    """Files and modules that pages and comments name and that do not exist."""
    pages = [page for page in tracked(root, "*.md") if page not in HISTORY]
    for page in pages:
        text = (root / page).read_text()
        for found in PATH.finditer(text):
            if not (root / found[1]).exists() and not (root / page).parent.joinpath(found[1]).exists():
                yield f"{page}:{line_of(text, found.start())}: there is no {found[1]}"
    files = tracked(root, "crates/*.rs")
    modules = {file.removesuffix(".rs").removesuffix("/mod").replace("/src/", "/", 1) for file in files}
    crates = {path.split("/")[1] for path in modules}
    for page in [*pages, *production_files(root)]:
        text = (root / page).read_text()
        for found in MODULE.finditer(text):
            first = found[2].split("::")[0]
            if found[1] in crates and not any(module.endswith(f"/{found[1]}/{first}") for module in modules):
                yield f"{page}:{line_of(text, found.start())}: there is no module {found[1]}::{first}"


def main() -> int:
    """Prints what is wrong; 1 if anything is."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    found = [*problems(root), *lost_names(root)]
    count = sum(len(checked) for checked in SENTENCES.values())
    print("\n".join(found) or f"sentences: {count} are checked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
