"""Holds the names of the product to the project's vocabulary (see docs/concepts for the words).

Three rules, each with a checked-in list of exceptions in which every entry has its reason:

- a class name is defined once in the Python packages; names that other products chose are allowed where
  they are offered (tools/shared_classes.txt);
- a type name is defined once in the workspace (tools/shared_names.txt), and at most SHARED_MAX definitions share one;
- no type, module, function, field or variant is named by a word that the vocabulary replaced
  (tools/allowed_words.txt).

An entry that no longer excuses anything fails too, so the lists cannot grow stale.

    python tools/check_names.py [--count] [DIRECTORY]
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rust_source import ROOT, closing, code, line_of, production_files, tracked

SHARED_MAX = 60
"""Fewer definitions than this may share their name with another one."""

REPLACED = {
    "request": "rider riders passenger passengers traveller travellers passage passages arrival arrivals visit visits",
    "part": "portion portions joint joints leg legs",
    "worker": "hands",
    "worker slot": "seat seats place places",
    "queue or group": "lane lanes line lines crowd crowds",
    "batch or candidate": "trip trips formed lead leads",
    "dispatch": "departure departures depart departs departed leave leaves leaving",
    "rejection": "refusal refusals refuse refuses refused hopeless hopeful",
    "timing": "receipt receipts ride rides rode riding",
    "setting or source": "wish wishes voice voices said",
    "request context or server state": "house floor desk",
    "worker exit": "burial bury buried autopsy death deaths",
}
"""The word to use, and the words it replaced."""

INSTEAD = {word: better for better, words in REPLACED.items() for word in words.split()}

TYPE = re.compile(
    r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|trait|union|type)\s+(\w+)", re.MULTILINE
)
NAMED = re.compile(
    r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?(?:default\s+|const\s+|async\s+|unsafe\s+|extern\s+\"\"\s+)*"
    r"(struct|enum|trait|union|type|fn|mod|const|static)\s+(\w+)",
    re.MULTILINE,
)
BODY = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?(struct|enum)\s+\w+[^;{]*\{", re.MULTILINE)
FIELD = re.compile(r"[,{}\]]\s*(?:pub(?:\([^)]*\))?\s+)?(\w+)\s*:(?!:)")
VARIANT = re.compile(r"[,{}\])]\s*([A-Z]\w*)\s*(?=[,({=}])")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True)
class Name:
    """A name and where it is given."""

    name: str
    kind: str
    file: str
    line: int

    def __str__(self) -> str:
        """As in a compiler's message."""
        return f"{self.file}:{self.line}: {self.kind} {self.name}"


@dataclass(frozen=True)
class Allowed:
    """A line of a list: what it allows, where, and why."""

    pattern: str
    where: str
    reason: str

    def covers(self, name: Name, word: str) -> bool:
        """Whether it excuses this name, or this word in every name."""
        named = fnmatchcase(name.name, self.pattern) or self.pattern == word
        return named and fnmatchcase(name.file, self.where)


def types(root: Path) -> dict[str, list[Name]]:
    """Every type of the product by name; associated types belong to their trait and do not count."""
    found = defaultdict(list)
    for file in production_files(root):
        text = code((root / file).read_text())
        for each in TYPE.finditer(text):
            associated = each[0].startswith((" ", "\t")) and re.search(r"\btype\s", each[0])
            if not associated:
                found[each[1]].append(Name(each[1], "type", file, line_of(text, each.start(1))))
    return found


def rust_names(root: Path) -> Iterator[Name]:
    """Types, modules, functions, constants, fields and variants of the product."""
    for file in production_files(root):
        text = code((root / file).read_text())
        stem = Path(file).stem if Path(file).name != "mod.rs" else Path(file).parent.name
        yield Name(stem, "module", file, 1)
        for each in NAMED.finditer(text):
            if each[1] != "mod" or not text[each.end() :].lstrip().startswith(";"):
                yield Name(each[2], each[1], file, line_of(text, each.start(2)))
        for each in BODY.finditer(text):
            end = closing(text, each.end() - 1)
            for member in FIELD.finditer(text, each.end() - 1, end):
                yield Name(member[1], "field", file, line_of(text, member.start(1)))
            for member in VARIANT.finditer(text, each.end() - 1, end) if each[1] == "enum" else ():
                yield Name(member[1], "variant", file, line_of(text, member.start(1)))


def python_names(root: Path) -> Iterator[Name]:
    """Classes, modules and functions of the Python package."""
    for file in tracked(root, "python/jitney/*.py"):
        yield Name(Path(file).stem, "module", file, 1)
        for node in ast.walk(ast.parse((root / file).read_text())):
            if isinstance(node, ast.ClassDef):
                yield Name(node.name, "class", file, node.lineno)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Name(node.name, "function", file, node.lineno)


def python_classes(root: Path) -> dict[str, list[Name]]:
    """Every class of the Python packages by name, those inside functions and classes too; tests are left out."""
    found = defaultdict(list)
    for file in tracked(root, "python/*.py"):
        if not file.startswith("python/tests/"):
            for node in ast.walk(ast.parse((root / file).read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(Name(node.name, "class", file, node.lineno))
    return found


def replaced(name: str) -> list[str]:
    """The replaced words in a name."""
    return [word for word in (part.lower() for part in WORD.findall(name)) if word in INSTEAD]


def read_list(path: Path) -> list[Allowed]:
    """The exceptions of a file: `NAME [in PATH]: reason` or `WORD [in PATH]: reason`; `*` stands for anything."""
    entries = []
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            what, colon, reason = line.partition(": ")
            if not colon or not reason.strip():
                raise SystemExit(f"{path.name}: an entry without a reason: {line}")
            pattern, _, where = what.strip().partition(" in ")
            entries.append(Allowed(pattern.strip(), where.strip() or "*", reason.strip()))
    return entries


def check_shared(defined: dict[str, list[Name]], allowed: list[Allowed]) -> list[str]:
    """What is wrong with the types that share a name."""
    shared = {name: places for name, places in defined.items() if len(places) > 1}
    excused = {entry.pattern for entry in allowed}
    problems = [
        f"{place}: this name is defined {len(places)} times; qualify it, or give a reason in shared_names.txt"
        for name, places in sorted(shared.items())
        if name not in excused
        for place in places
    ]
    problems += [f"shared_names.txt: {name} is no longer shared" for name in sorted(excused - set(shared))]
    count = sum(len(places) for places in shared.values())
    if count >= SHARED_MAX:
        problems.append(f"{count} definitions share a name; fewer than {SHARED_MAX} may")
    return problems


def check_classes(defined: dict[str, list[Name]], allowed: list[Allowed]) -> list[str]:
    """What is wrong with the classes that share a name."""
    problems, needed = [], set()
    for name, places in sorted(defined.items()):
        covering = [[entry for entry in allowed if entry.covers(place, name)] for place in places]
        if len(places) > 1:
            needed.update(entry for entries in covering for entry in entries)
        own = [place for place, entries in zip(places, covering, strict=True) if not entries]
        if len(own) > 1:
            problems += [f"{place}: this class is defined {len(own)} times; qualify its name" for place in own]
    stale = [entry for entry in allowed if entry not in needed]
    return problems + [f"shared_classes.txt: {entry.pattern} in {entry.where} is no longer shared" for entry in stale]


def check_words(names: Iterable[Name], allowed: list[Allowed]) -> list[str]:
    """What is wrong with the words in names."""
    problems, needed = [], set()
    for name in names:
        for word in replaced(name.name):
            covering = [entry for entry in allowed if entry.covers(name, word)]
            needed.update(covering)
            if not covering:
                problems.append(f"{name}: say {INSTEAD[word]}, not {word}; or give a reason in allowed_words.txt")
    stale = [entry for entry in allowed if entry not in needed]
    return problems + [f"allowed_words.txt: nothing needs {entry.pattern} in {entry.where}" for entry in stale]


def main() -> int:
    """Prints what breaks the rules; 1 if anything does. With --count only how much."""
    words = [word for word in sys.argv[1:] if word != "--count"]
    root = Path(words[0]).resolve() if words else ROOT
    lists = root / "tools"
    defined = types(root)
    shared = check_shared(defined, read_list(lists / "shared_names.txt"))
    shared += check_classes(python_classes(root), read_list(lists / "shared_classes.txt"))
    worded = check_words([*rust_names(root), *python_names(root)], read_list(lists / "allowed_words.txt"))
    definitions = sum(len(places) for places in defined.values())
    sharing = sum(len(places) for places in defined.values() if len(places) > 1)
    print(f"names: {definitions} types, {sharing} share a name; {len(shared)} + {len(worded)} problems")
    if "--count" not in sys.argv:
        print("\n".join(shared + worded))
    return 1 if shared or worded else 0


if __name__ == "__main__":
    sys.exit(main())
