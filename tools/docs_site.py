"""The hook that makes a site of the pages as they lie in the repository; mkdocs.yml names it, `make docs` runs it.

The pages are written for a code host first. This bridges what differs: the navigation comes from docs/README.md, files
outside docs/ that a page links to come along (Markdown as pages, others as files), lists need no empty line before
them, two titled code blocks stand side by side, and the words after a block's language that are for the tests are left
out.
"""

from __future__ import annotations

import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import docs_pages as pages

OUTSIDE = "project"
"""The folder of the site for what lies outside docs/."""

BOOSTS = {"guides": 4, "coming-from": 3, "operations": 2, "adr": 0.2, OUTSIDE: 0.2}
"""How much a page of a folder counts in a search."""

LIST_ITEM = re.compile(r"([-*+]|\d+\.) ")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation, from the index."""
    home: dict[str, Any] = {"Home": "README.md"}
    config.nav = [home, *({title: [entry(*one) for one in listed]} for title, listed in pages.sections().items())]
    return config


def entry(title: str, page: Path) -> dict[str, Any]:
    """A page of the navigation, or a folder with its index first."""
    if page.name == "README.md" and page.is_relative_to(pages.DOCS):
        below: list[Any] = [str(place(page))]
        for section, listed in pages.sections(page).items():
            links = [{name: str(place(file))} for name, file in listed]
            below += [{section: links}] if section and links else links
        return {title: below}
    return {title: str(place(page))}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what pages link to outside docs/, and what those link to."""
    pending = [*pages.pages(), *(page for listed in pages.sections().values() for _, page in listed)]
    seen: set[Path] = set()
    while pending:
        page = pending.pop()
        if page in seen:
            continue
        seen.add(page)
        if not page.is_relative_to(pages.DOCS):
            content = page.read_text() if page.suffix == ".md" else page.read_bytes()
            files.append(File.generated(config, str(place(page)), content=content))
        if page.suffix == ".md":
            pending += [file for _, link in pages.links(page) if (file := resolved(page, link)) is not None]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page as the site's Markdown wants it, and how much it counts in a search."""
    page.meta["search"] = {"boost": BOOSTS.get(page.file.src_uri.partition("/")[0], 1)}
    return listed(beside(plain_fences(rebased(markdown, source(page.file.src_uri)))))


def place(file: Path) -> Path:
    """Where a file of the repository lies in the site, before it is rendered."""
    if file.is_relative_to(pages.DOCS):
        return file.relative_to(pages.DOCS)
    return Path(OUTSIDE) / file.relative_to(pages.ROOT)


def source(uri: str) -> Path:
    """The file of the repository that a page of the site comes from."""
    path = Path(uri)
    if path.parts[0] == OUTSIDE:
        return pages.ROOT / path.relative_to(OUTSIDE)
    return pages.DOCS / path


def resolved(page: Path, link: str) -> Path | None:
    """The file that a link leads to; a folder's is its README.md, if it has one."""
    file = pages.target(page, link)
    if file.is_dir():
        file = file / "README.md"
    return file if file.is_file() else None


def rebased(markdown: str, page: Path) -> str:
    """Links as the site has them; a link to a folder without an index becomes plain text."""
    hidden = pages.prose(markdown)
    pieces, end = [], 0
    for found in pages.LINK.finditer(hidden):
        link = found[2]
        if "://" in link or link.startswith(("mailto:", "#")):
            continue
        file = resolved(page, link)
        pieces.append(markdown[end : found.start()])
        end = found.end()
        label = markdown[found.start(1) : found.end(1)]
        if file is None:
            pieces.append(label.removeprefix("!").removeprefix("[").removesuffix("]("))
            continue
        _, hash_sign, anchor = link.partition("#")
        relative = os.path.relpath(place(file), place(page).parent)
        pieces.append(f"{label}{relative}{hash_sign}{anchor})")
    return "".join([*pieces, markdown[end:]])


def plain_fences(markdown: str) -> str:
    """Code blocks with their language and title only."""

    def fence(found: re.Match[str]) -> str:
        language, _, rest = found[3].strip().partition(" ")
        title = pages.options(rest).get("title")
        info = f'{language} title="{title}"' if title else language
        return f"{found[1]}{found[2]}{info}\n{found[4]}{found[1]}{found[2]}"

    return pages.FENCE.sub(fence, markdown)


def beside(markdown: str) -> str:
    """Two blocks with titles, one after another, stand side by side where there is room: their code and ours."""
    titled = [found for found in pages.FENCE.finditer(markdown) if "title=" in found[3] and not found[1]]
    pieces, end = [], 0
    for first, second in pairwise(titled):
        if first.start() >= end and not markdown[first.end() : second.start()].strip():
            block = markdown[first.start() : second.end()]
            pieces += [markdown[end : first.start()], f'<div class="beside" markdown>\n\n{block}\n\n</div>']
            end = second.end()
    return "".join([*pieces, markdown[end:]])


def listed(markdown: str) -> str:
    """An empty line before each list, outside of code."""
    lines, code = (
        [],
        [bool(line.strip()) for line in pages.FENCE.sub(lambda it: "\n" * it[0].count("\n"), markdown).split("\n")],
    )
    before = ""
    for line, is_text in zip(markdown.split("\n"), code, strict=True):
        if is_text and LIST_ITEM.match(line) and before.strip() and not LIST_ITEM.match(before) and before[0] != " ":
            lines.append("")
        lines.append(line)
        before = line
    return "\n".join(lines)
