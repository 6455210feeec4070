"""The documentation as text: links lead somewhere, every page is in the navigation, every code block says what it is.

`make docs` builds the site from the same pages and fails on what the generator does not understand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import docs_pages
from docs_pages import DOCS, ROOT

PAGES = [*docs_pages.pages(), *sorted(ROOT.glob("*.md")), *sorted((ROOT / "protocol").glob("*.md"))]


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page in PAGES:
        for line, link in docs_pages.links(page):
            file, anchor = docs_pages.target(page, link), link.partition("#")[2]
            if not file.exists() or not file.is_relative_to(ROOT):
                broken.append(f"{page.relative_to(ROOT)}:{line}: {link} is not there")
            elif anchor and anchor not in docs_pages.anchors(file):
                broken.append(f"{page.relative_to(ROOT)}:{line}: {link} names no heading")
    assert not broken, "\n".join(broken)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = docs_pages.in_navigation()
    missing = [str(page.relative_to(ROOT)) for page in docs_pages.pages() if page not in listed]
    assert not missing, f"list them in docs/README.md: {missing}"
    entries = [page for section in docs_pages.sections().values() for _, page in section]
    assert len(entries) == len(set(entries)), "a page is listed twice in docs/README.md"
    assert all(docs_pages.sections().values()), "a section of docs/README.md has no page"


def test_the_voices_are_where_readers_look_for_them() -> None:
    sections = docs_pages.sections()
    assert list(sections) == ["Guides", "Coming from", "Concepts", "Operations", "Reference", "Project"]
    for title, listed in sections.items():
        folder = DOCS / title.lower().replace(" ", "-")
        for _, page in listed:
            assert title == "Project" or page.is_relative_to(folder) or not page.is_relative_to(DOCS), page


def test_a_page_begins_with_its_one_title() -> None:
    for page in docs_pages.pages():
        text = docs_pages.prose(page.read_text())
        titles = [line for line in text.splitlines() if line.startswith("# ")]
        assert text.startswith("# ") and len(titles) == 1, f"{page}: {titles}"


def test_every_metric_that_a_page_names_exists() -> None:
    reference = (DOCS / "reference" / "metrics.md").read_text()
    known = set(re.findall(r"^\| `(jitney_\w+)`", reference, re.MULTILINE))
    known |= {f"jitney_{crate.name}" for crate in (ROOT / "crates").iterdir()}  # Targets of log lines.
    unknown = set()
    for page in (page for page in docs_pages.pages() if page.parent.name != "adr"):
        for name in re.findall(r"`(jitney_[a-z_]+)(?:\{[^`]*\})?`", page.read_text()):
            if re.sub(r"_(bucket|sum|count)$", "", name) not in known:
                unknown.add(f"{page.relative_to(ROOT)}: {name}")
    assert unknown == set()


def test_reasons_of_rejections_are_those_that_are_counted() -> None:
    declared = re.search(
        r"const REJECTIONS: \[&str; \d+\] = \[(.*?)\];", sources(ROOT / "crates" / "engine"), re.DOTALL
    )
    counted = re.findall(r'"(\w+)"', declared[1])
    reference = (DOCS / "reference" / "metrics.md").read_text()
    row = re.search(r"^\| `jitney_rejections_total` \| counter .*$", reference, re.MULTILINE)[0]
    assert re.findall(r"`(\w+)`", row.split("by reason:")[1]) == counted
    named = [(page.name, re.findall(r'rejections_total\{[^}]*reason="(\w+)"', page.read_text())) for page in PAGES]
    assert [(page, reason) for page, reasons in named for reason in reasons if reason not in counted] == []


def test_the_readme_has_the_figures_of_the_page_on_performance() -> None:
    table = (ROOT / "README.md").read_text().partition("## Measured")[2].partition("kill -9")[0]
    figures = [cell for row in re.findall(r"^\|.*\|$", table, re.MULTILINE)[2:] for cell in row.split("|")[2:4]]
    known = re.findall(r"[\d.,]+", (DOCS / "reference" / "performance.md").read_text())
    assert len(figures) == 10
    assert [each for cell in figures for each in re.findall(r"\d[\d.,]*", cell) if each not in known] == []


def sources(crate: Path) -> str:
    """All Rust of a crate."""
    return "\n".join(path.read_text() for path in sorted((crate / "src").rglob("*.rs")))


def test_every_code_block_says_what_it_is() -> None:
    wrong = []
    for block in (block for page in [ROOT / "README.md", *docs_pages.pages()] for block in docs_pages.blocks(page)):
        if block.language not in docs_pages.LANGUAGES:
            wrong.append(f"{block.where}: language {block.language!r} is none of {list(docs_pages.LANGUAGES)}")
        if unknown := set(block.options) - set(docs_pages.OPTIONS):
            wrong.append(f"{block.where}: {unknown} is none of {list(docs_pages.OPTIONS)}")
        if block.options.get("no-run") == "":
            wrong.append(f'{block.where}: say why: no-run="..."')
    assert not wrong, "\n".join(wrong)
