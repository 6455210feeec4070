"""A real browser that looks at the server's pages, and what it had to complain about.

Nothing but the server under test may be asked: every request of a page is written down.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("JITNEY_TEST_CHROMIUM") or shutil.which("chromium")
ASK_MILLIS = 120_000.0


@dataclass
class OpenPage:
    """An open page."""

    page: Page
    asked: list[str] = field(default_factory=list)
    """The addresses it asked."""
    complaints: list[str] = field(default_factory=list)
    """What is on the console, and scripts that failed."""

    def fits(self) -> bool:
        """Whether nothing hangs over the edge of the screen."""
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        return bool(self.page.evaluate(wide))


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    assert CHROMIUM, "no chromium on the PATH; see `make test-browser`"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


def open_page(chromium: Browser, url: str, *, width: int = 1000, dark: bool = False) -> OpenPage:
    """Opens a page on a screen of this width."""
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    page.set_default_timeout(ASK_MILLIS)
    opened = OpenPage(page)
    page.on("request", lambda request: opened.asked.append(request.url))
    page.on("console", lambda message: opened.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.goto(url)
    return opened
