"""The documentation site opened from the disk in a real browser: no other host is asked, and search works.

`make test-docs` builds the site and names it in JITNEY_DOCS_SITE.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness.browser import browser, open_page

SITE = Path(os.environ.get("JITNEY_DOCS_SITE", "target/docs-site")).absolute()

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(
        find_spec("playwright") is None or not (SITE / "index.html").exists(),
        reason="needs playwright, chromium and the built site: make test-docs",
    ),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as chromium:
        yield chromium


@pytest.mark.parametrize("asked", ["queue full", "max_batch_delay", "liveness"])
def test_search_works_from_the_disk_and_asks_nobody(chromium: Any, asked: str) -> None:
    opened = open_page(chromium, (SITE / "index.html").as_uri())
    opened.page.locator("input.md-search__input").fill(asked)
    result = opened.page.locator(".md-search-result__link").first
    result.wait_for()
    address = result.get_attribute("href")
    opened.page.goto(address if "://" in address else (SITE / address).as_uri())
    assert asked.split()[0] in opened.page.content().lower()
    assert [url for url in opened.asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_page_follows_the_system_and_fits_a_phone(chromium: Any, dark: bool) -> None:
    opened = open_page(chromium, (SITE / "guides" / "definitions.html").as_uri(), width=390, dark=dark)
    opened.page.wait_for_selector("[data-md-color-scheme]")
    scheme = opened.page.locator("body").get_attribute("data-md-color-scheme")
    assert (scheme, opened.fits()) == ("slate" if dark else "default", True)


def test_the_tabs_lead_to_every_section(chromium: Any) -> None:
    opened = open_page(chromium, (SITE / "index.html").as_uri(), width=1400)
    tabs = [text.strip() for text in opened.page.locator(".md-tabs__link").all_inner_texts()]
    assert tabs == ["Home", "Guides", "Coming from", "Concepts", "Operations", "Reference", "Project"]
