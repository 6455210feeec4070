"""Checks that the default of a setting stands only in the settings table (crates/settings).

A setting that declares a default is read with `value(&NAME)`, which falls back to the declaration. `read(&NAME)` with
a fallback beside it would spell the default a second time, and the two would differ one day.

    python tools/check_defaults.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from rust_source import ROOT, code, line_of, production_files

DECLARED = re.compile(
    r"^\s*([A-Z][A-Z0-9_]*) = (?:Setting::new|key|java)\((?:[^;\"]|\"(?:[^\"\\]|\\.)*\")*;", re.MULTILINE
)
FALLBACK = re.compile(r"\.read(?:::<[^>]+>)?\(\s*&([A-Z][A-Z0-9_]*)\s*\)\s*\.(?:unwrap_or|map_or)\w*\(")


def with_default(tables: str) -> set[str]:
    """The settings whose declaration has a default."""
    return {found[1] for found in DECLARED.finditer(tables) if ".or(" in found[0]}


def spelled_again(text: str, declared: set[str]) -> Iterator[tuple[int, str]]:
    """The line and the setting of every second default in a Rust source."""
    text = code(text)
    for found in FALLBACK.finditer(text):
        if found[1] in declared:
            yield line_of(text, found.start()), found[1]


def main() -> int:
    tables = sorted((ROOT / "crates/settings/src").glob("*.rs"))
    declared = with_default("\n".join(table.read_text(encoding="utf-8") for table in tables))
    if not declared:
        print("no setting with a default was found: has the form of the tables changed?")
        return 1
    problems = [
        f"{path}:{line}: {name} has a declared default: read it with value(&{name})"
        for path in production_files(ROOT)
        for line, name in spelled_again((ROOT / path).read_text(encoding="utf-8"), declared)
    ]
    print("\n".join([*problems, f"defaults: {len(declared)} declared, {len(problems)} spelled again"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
