"""Reads Rust sources for the checks: without comments, strings and test code, so that only production code counts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

NOT_PRODUCTION = re.compile(
    r"/(tests|testkit|examples|benches|generated)/|/(tests|testkit|fuzzing)\.rs$|^(bench|fuzz)/"
)
"""Paths of files whose code is never part of the product."""

TOKEN = re.compile(
    r"""
      //[^\n]*                                # a comment to the end of the line
    | /\*.*?\*/                               # a block comment
    | b?r(?P<hashes>\#*)".*?"(?P=hashes)      # a raw string
    | b?"(?:[^"\\]|\\.)*"                     # a string
    | b?'(?:[^'\\\n]|\\(?:[^u\n]|u\{\w*\}))'  # a character; a lifetime has no closing quote
    """,
    re.VERBOSE | re.DOTALL,
)
TEST_ONLY = re.compile(r"#\[cfg\((?!not\()[^\]]*\btest\b[^\]]*\)\]\s*")
ATTRIBUTE = re.compile(r"#\[[^\]]*\]\s*")


def tracked(root: Path, *patterns: str) -> list[str]:
    """The paths of the project's own files that match, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted(path for path in listed if path and (root / path).is_file())


def production_files(root: Path) -> list[str]:
    """The Rust files of the product."""
    return [path for path in tracked(root, "crates/*.rs") if not NOT_PRODUCTION.search(path)]


def code(text: str) -> str:
    """The text without comments, strings and test code; every line stays where it was."""
    return without_tests(TOKEN.sub(blank, text))


def test_lines(text: str) -> int:
    """How many lines only tests compile, with the attributes and comments that belong to them."""
    read = TOKEN.sub(blank, text)
    return sum(read.count("\n", start, end) + 1 for start, end in test_items(read))


def blank(found: re.Match[str]) -> str:
    """Nothing but the line breaks of what was found; a string stays a string."""
    breaks = "\n" * found[0].count("\n")
    return breaks if found[0].startswith("/") else f'""{breaks}'


def without_tests(text: str) -> str:
    """Leaves out the items that are compiled for tests only."""
    kept, at = [], 0
    for start, end in test_items(text):
        kept += [text[at:start], "\n" * text.count("\n", start, end)]
        at = end
    return "".join(kept) + text[at:]


def test_items(text: str) -> Iterator[tuple[int, int]]:
    """Where each item that is compiled for tests only starts and ends."""
    at = 0
    for found in TEST_ONLY.finditer(text):
        if found.start() >= at:
            at = item_end(text, found.end())
            yield found.start(), at


def item_end(text: str, start: int) -> int:
    """Where the item that starts here ends: behind its body, or behind its semicolon or comma."""
    while found := ATTRIBUTE.match(text, start):
        start = found.end()
    depth = 0
    for at in range(start, len(text)):
        sign = text[at]
        if sign in "{([":
            depth += 1
        elif sign in "})]":
            depth -= 1
            if depth < 0:
                return at
            if depth == 0 and sign == "}" and text[at + 1 : at + 2] != ";":
                return at + 1
        elif sign in ";," and depth == 0:
            return at + 1
    return len(text)


def closing(text: str, opened: int) -> int:
    """Where the brace that opens here closes."""
    depth = 0
    for at in range(opened, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


def line_of(text: str, at: int) -> int:
    """The number of the line that holds this character."""
    return text.count("\n", 0, at) + 1


def strongly_connected(arrows: dict[str, set[str]]) -> Iterator[list[str]]:
    """The groups of at least two nodes that reach each other (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in sorted(arrows):
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(arrows[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    if len(group) > 1:
                        yield sorted(group)
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sorted(arrows.get(following, set())))))
            elif following in on_stack:
                low[node] = min(low[node], index[following])
