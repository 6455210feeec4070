"""Counts what shows whether the code stays small: lines, long functions, long files, circles, modules side by side.

Production lines are those of the product's own sources: Rust in crates/*/src and the Python packages that are
installed; without tests, test kits, examples, fuzzing entries and generated code. Comments count, since they are read.

`make lint` fails on a function or a file above its bound that tools/long_code.txt does not name, and on an entry
there that is no longer needed. It never changes anything.

    python tools/house.py [--check] [DIRECTORY]
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import check_modules
from rust_source import ROOT, closing, code, line_of, production_files, test_lines, tracked

PACKAGES = ("jitney", "ts", "model_archiver", "workflow_archiver")
FUNCTION_LINES = 70
FILE_LINES = 450
TOP_FOLDER = "python/jitney"
TOP_MODULES = 15
LONG_CODE = "tools/long_code.txt"

FUNCTION = re.compile(r"\bfn\s+(\w+)[^;{]*\{")


def rust_lines(root: Path) -> dict[str, int]:
    """The production lines of each Rust file."""
    texts = {file: (root / file).read_text() for file in production_files(root) if "/src/" in file}
    return {file: text.count("\n") - test_lines(text) for file, text in texts.items()}


def python_files(root: Path) -> list[str]:
    """The files of the packages that are installed."""
    patterns = [f"python/{package}/*.py" for package in PACKAGES]
    return [path for path in tracked(root, *patterns) if "/tests/" not in path]


def python_lines(root: Path) -> dict[str, int]:
    """The lines of each Python file."""
    return {file: (root / file).read_text().count("\n") for file in python_files(root)}


def rust_functions(root: Path) -> Iterator[tuple[str, int]]:
    """Every function of the product as `file:name`, and how many lines it has from its first to its last."""
    for file in production_files(root):
        text = code((root / file).read_text())
        for found in FUNCTION.finditer(text):
            first, last = (line_of(text, at) for at in (found.start(), closing(text, found.end() - 1)))
            yield f"{file}:{found[1]}", last - first + 1


def python_functions(root: Path) -> Iterator[tuple[str, int]]:
    """The same for Python."""
    for file in python_files(root):
        for node in ast.walk(ast.parse((root / file).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{file}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def long_code(root: Path) -> dict[str, int]:
    """Functions and files above their bound, with their lines."""
    functions = [*rust_functions(root), *python_functions(root)]
    found = {name: lines for name, lines in functions if lines > FUNCTION_LINES}
    files = rust_lines(root) | python_lines(root)
    return found | {name: lines for name, lines in files.items() if lines > FILE_LINES}


def check(root: Path) -> list[str]:
    """What is too long and not known, and what is known and no longer too long."""
    found, path = long_code(root), root / LONG_CODE
    lines = path.read_text().splitlines() if path.exists() else []
    known = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    problems = [f"{name}: {lines} lines; look for the noun that is missing" for name, lines in sorted(found.items())]
    problems = [line for line in problems if line.rsplit(": ", 1)[0] not in known]
    return problems + [f"{LONG_CODE}: no longer too long: {name}" for name in sorted(known - set(found))]


def figures(root: Path) -> Iterator[str]:
    """The lines of the table."""
    rust, python = rust_lines(root), python_lines(root)
    long, arrows = long_code(root), check_modules.all_arrows(root)
    functions = [name for name in long if ":" in name]
    top = [path for path in python if str(Path(path).parent) == TOP_FOLDER]
    yield f"Rust production lines        {sum(rust.values()):>7} in {len(rust)} files"
    yield f"Python production lines      {sum(python.values()):>7} in {len(python)} files"
    yield f"together                     {sum(rust.values()) + sum(python.values()):>7}"
    yield f"functions over {FUNCTION_LINES} lines      {len(functions):>7}"
    yield f"files over {FILE_LINES} lines         {len(long) - len(functions):>7}"
    yield f"circles of files             {len(check_modules.circles(arrows)):>7}"
    yield f"circles of folders           {len(check_modules.folder_circles(arrows)):>7}"
    yield f"modules in {TOP_FOLDER}     {len(top):>7}, at most {TOP_MODULES}"
    for crate, lines in sorted(shares(rust).items()):
        yield f"  crates/{crate:<20} {lines:>7}"
    for package, lines in sorted(shares(python).items()):
        yield f"  python/{package:<20} {lines:>7}"


def shares(files: dict[str, int]) -> Counter[str]:
    """Lines by crate or package."""
    counted: Counter[str] = Counter()
    for file, lines in files.items():
        counted[file.split("/")[1]] += lines
    return counted


def main() -> int:
    """Prints the figures; with --check only what is too long, and 1 if anything is."""
    words = [word for word in sys.argv[1:] if word != "--check"]
    root = Path(words[0]).resolve() if words else ROOT
    if "--check" in sys.argv:
        problems = check(root)
        print("\n".join(problems) or "lengths: no function and no file is too long that was not known")
        return 1 if problems else 0
    for line in figures(root):
        print(line)
    for name, lines in sorted(long_code(root).items()):
        print(f"  {lines:>4} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
