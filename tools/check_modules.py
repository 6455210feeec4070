"""Fails where modules of a Rust crate or of a Python package import each other in a circle, or folders do.

An import counts for the file that defines the name: re-exports are followed. `mod child;` alone is no import, and a
parent that only re-exports a child's names does not depend on it. Test code is left out; what is imported for types
only counts.

Two rooms that lie side by side form a circle when each imports something from the other, directly or through a third.
A room is a file, or a folder with all that lies below it and the file that bears its name. In python/jitney the files
of the top folder are one room too. Circles of folders that are known and not yet undone stand in
tools/folder_circles.txt; an entry that no longer holds fails, so that the list only shrinks.

    python tools/check_modules.py [DIRECTORY]
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from rust_source import ROOT, code, production_files, strongly_connected, tracked

MODULE = re.compile(r"(?:^|[;{}\]\s])(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")
USE = re.compile(r"(?:^|(?<=[;{}\]\s]))(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
DEFINED = re.compile(r"\b(?:struct|enum|trait|type|union|fn|const|static|mod|macro_rules!)\s+(?:mut\s+)?(\w+)")
PATH = re.compile(r"(?<![\w:$])((?:\w+\s*::\s*)+\w+)")
LAYERS = re.compile(r"/(?:lib|main|mod)\.rs$")
ENDING = re.compile(r"(?:/(?:lib|main|mod))?\.rs$|(?:/__init__)?\.py$")
PYTHON = ("python", "bench", "tools", "fuzz")
"""Where Python packages and scripts lie; the imports of each are read by themselves."""
TOP_ROOM = "python/jitney"
"""A folder whose own files are one room, beside its folders."""
KNOWN = "tools/folder_circles.txt"

Arrows = dict[str, dict[str, set[str]]]
"""From a file to a file: the names that the first takes from the second."""


@dataclass
class Module:
    """A module of a crate, which is a file."""

    path: tuple[str, ...]
    file: str
    text: str
    children: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    used: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What its imports bring in, by local name: paths as written."""
    imported: set[tuple[str, ...]] = field(default_factory=set)
    """The paths it depends on; re-exports are not among them."""
    globs: list[tuple[str, ...]] = field(default_factory=list)


def leaves(tree: str) -> list[tuple[tuple[str, ...], str]]:
    """The paths of a use tree and the names they get."""
    tree = tree.strip()
    opened = tree.find("{")
    if opened < 0:
        path, _, alias = (part.strip() for part in re.sub(r"\s+", " ", tree).partition(" as "))
        parts = tuple(part.strip() for part in path.split("::") if part.strip())
        return [(parts, alias or parts[-1])] if parts else []
    prefix = tuple(part.strip() for part in tree[:opened].split("::") if part.strip())
    found = []
    for branch in split(tree[opened + 1 : tree.rfind("}")]):
        for path, alias in leaves(branch):
            if path[-1] == "self":
                path = path[:-1]
                alias = (prefix + path)[-1] if alias == "self" else alias
            found.append((prefix + path, alias))
    return found


def split(text: str) -> list[str]:
    """The parts between the commas of the outermost level."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


def read_crate(root: Path, source: str, files: set[str]) -> dict[tuple[str, ...], Module]:
    """The modules of a crate by path, from its root file on."""
    modules: dict[tuple[str, ...], Module] = {}
    pending: list[tuple[tuple[str, ...], str]] = [
        ((), f"{source}/{name}.rs") for name in ("lib", "main") if f"{source}/{name}.rs" in files
    ]
    while pending:
        path, file = pending.pop()
        module = read_module(path, file, code((root / file).read_text()))
        modules[path] = module
        folder = str(Path(file).parent) if LAYERS.search(file) else file.removesuffix(".rs")
        for child in list(module.children):
            found = [name for name in (f"{folder}/{child}.rs", f"{folder}/{child}/mod.rs") if name in files]
            if found:
                pending.append(((*path, child), found[0]))
            else:
                module.children.discard(child)
    return modules


def read_module(path: tuple[str, ...], file: str, text: str) -> Module:
    """What a file declares, defines and imports."""
    module = Module(path, file, text)
    module.children = set(MODULE.findall(text))
    for found in USE.finditer(text):
        for route, alias in leaves(found[2]):
            if route[-1] == "*":
                module.globs.append(route[:-1])
                if not found[1]:
                    module.imported.add(route)
                continue
            module.used[alias] = route
            if not found[1]:
                module.imported.add(route)
    rest = USE.sub(" ", text)
    module.defined = set(DEFINED.findall(rest)) - module.children
    for found in PATH.finditer(rest):
        module.imported.add(tuple(part.strip() for part in found[1].split("::")))
    return module


class Crate:
    """The modules of a crate, and the way from a path to the file that defines what it names."""

    def __init__(self, modules: dict[tuple[str, ...], Module]) -> None:
        self.modules = modules

    def start(self, module: Module, path: tuple[str, ...]) -> tuple[Module, tuple[str, ...]] | None:
        """The module in which a path begins, and what is left of it; none for other crates."""
        head, rest = path[0], path[1:]
        if head == "crate":
            return self.modules[()], rest
        if head == "self":
            return module, rest
        if head == "super":
            if not module.path:
                return None
            here = self.modules[module.path[:-1]]
            while rest and rest[0] == "super" and here.path:
                here, rest = self.modules[here.path[:-1]], rest[1:]
            return here, rest
        if head in module.children or head in module.defined or head in module.used:
            return module, path
        return None

    def defining(
        self, module: Module, path: tuple[str, ...], seen: frozenset[tuple[str, str]] = frozenset()
    ) -> list[Module]:
        """The modules that define what a path names; none where it leaves the crate or names a module only."""
        begun = self.start(module, path)
        if begun is None:
            return []
        here, rest = begun
        while rest:
            name = rest[0]
            if name in here.children:
                here, rest = self.modules[(*here.path, name)], rest[1:]
                continue
            if name == "*":
                return [here]
            if name in here.defined:
                return [here]
            if (here.file, name) in seen:
                return []
            seen = seen | {(here.file, name)}
            if name in here.used:
                if len(here.used[name]) == 1 and here.used[name][0] == name:
                    return []
                return self.through(here, here.used[name], rest[1:], seen)
            for glob in here.globs:
                if found := self.through(here, glob, rest, seen):
                    return found
            return [here] if not here.globs else []
        return []

    def through(
        self, module: Module, path: tuple[str, ...], rest: tuple[str, ...], seen: frozenset[tuple[str, str]]
    ) -> list[Module]:
        """Follows a re-export: the path it names, and what comes behind it."""
        found = self.defining(module, (*path, *rest), seen)
        return found or (self.defining(module, path, seen) if rest else [])

    def arrows(self) -> Arrows:
        """Which file takes what from which."""
        arrows: Arrows = {module.file: defaultdict(set) for module in self.modules.values()}
        for module in self.modules.values():
            for path in module.imported:
                for target in self.defining(module, path):
                    if target.file != module.file:
                        arrows[module.file][target.file].add("::".join(path))
        return arrows


def rust_arrows(root: Path) -> Arrows:
    """The imports between the files of each crate."""
    files = set(production_files(root))
    arrows: Arrows = {}
    for source in sorted({"/".join(path.split("/")[:3]) for path in files if path.split("/")[2:3] == ["src"]}):
        arrows |= Crate(read_crate(root, source, files)).arrows()
    return arrows


def python_arrows(root: Path, packages: str = "python") -> Arrows:
    """The imports between the files of each Python package; names are followed to the file that defines them."""
    files = [path for path in tracked(root, f"{packages}/*.py") if "/tests/" not in path]
    modules = {module_name(path.removeprefix(f"{packages}/")): path for path in files}
    trees = {name: ast.parse((root / path).read_text()) for name, path in modules.items()}
    reexports = {name: dict(reexported(name, modules[name], tree)) for name, tree in trees.items()}
    arrows: Arrows = {path: defaultdict(set) for path in files}
    for name, tree in trees.items():
        own = {
            node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        package = modules[name].endswith("/__init__.py")
        for node in imports(tree):
            for module, taken in named(node, name, modules[name]):
                if package and is_reexport(node, tree) and taken not in own and module.startswith(f"{name}."):
                    continue
                target = resolve_python(module, taken, modules, reexports)
                if target and target != name:
                    arrows[modules[name]][modules[target]].add(taken or module)
    return arrows


def module_name(path: str) -> str:
    """The dotted name of a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """Every import, wherever it stands; those for type checkers too, since a reader follows them."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def named(node: ast.Import | ast.ImportFrom, name: str, file: str) -> list[tuple[str, str | None]]:
    """The modules an import names, and what it takes from each."""
    if isinstance(node, ast.Import):
        return [(alias.name, None) for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = name.split(".") if file.endswith("/__init__.py") else name.split(".")[:-1]
        parts = parts[: len(parts) - node.level + 1]
        base = ".".join([*parts, base] if base else parts)
    return [(base, alias.name) for alias in node.names]


def is_reexport(node: ast.Import | ast.ImportFrom, tree: ast.Module) -> bool:
    """Whether a package only hands on what it imports: it does so at its top level."""
    return node in tree.body


def reexported(name: str, file: str, tree: ast.Module) -> list[tuple[str, tuple[str, str | None]]]:
    """The names a file imports at its top level, and from where."""
    return [
        (alias.asname or alias.name, (module, alias.name))
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias, (module, _) in zip(node.names, named(node, name, file), strict=True)
    ]


def resolve_python(
    module: str,
    taken: str | None,
    modules: dict[str, str],
    reexports: dict[str, dict[str, tuple[str, str | None]]],
    depth: int = 10,
) -> str | None:
    """The module that defines a name."""
    if taken and f"{module}.{taken}" in modules:
        return f"{module}.{taken}"
    if module not in modules:
        return None
    if taken and depth and taken in reexports[module]:
        further = reexports[module][taken]
        return resolve_python(*further, modules, reexports, depth - 1) or module
    return module


def circles(arrows: Arrows) -> list[list[str]]:
    """The groups of files that import each other."""
    return list(strongly_connected({file: set(targets) for file, targets in arrows.items()}))


def report(arrows: Arrows) -> list[str]:
    """A line for each circle, and under it what ties it."""
    lines = []
    for circle in circles(arrows):
        lines.append(f"circle of {len(circle)} files:")
        for file in circle:
            targets = sorted(set(arrows[file]) & set(circle))
            lines += [f"  {file} -> {target}: {', '.join(sorted(arrows[file][target]))}" for target in targets]
    return lines


def room_arrows(arrows: Arrows) -> Arrows:
    """From a room to a room beside it: which files tie them."""
    between: Arrows = defaultdict(lambda: defaultdict(set))
    for file, targets in arrows.items():
        for target, names in targets.items():
            here, there = rooms(file, target)
            if here != there:
                between[here][there].add(f"{file} -> {target}: {', '.join(sorted(names))}")
    return between


def rooms(file: str, target: str) -> tuple[str, str]:
    """The rooms of two files below the last folder that holds both; the same one twice where one holds the other."""
    here, there = (ENDING.sub("", path).split("/") for path in (file, target))
    apart = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
    if apart is None:
        return "", ""
    here_top, there_top = (TOP_ROOM if str(Path(path).parent) == TOP_ROOM else "" for path in (file, target))
    return here_top or "/".join(here[: apart + 1]), there_top or "/".join(there[: apart + 1])


def folder_circles(arrows: Arrows) -> list[list[str]]:
    """The groups of rooms that import each other. One without a folder is a circle of files, which is found as such."""
    folders = {str(folder) for file in arrows for folder in Path(file).parents}
    return [circle for circle in circles(room_arrows(arrows)) if folders & set(circle)]


def report_folders(arrows: Arrows, known: list[list[str]]) -> list[str]:
    """A line for each circle of folders that is not known, and under it the files that tie it."""
    lines, between = [], room_arrows(arrows)
    for circle in folder_circles(arrows):
        if circle not in known:
            lines.append(f"circle of folders: {' '.join(circle)}")
            for room in circle:
                for target in sorted(set(between[room]) & set(circle)):
                    lines += [f"  {tie}" for tie in sorted(between[room][target])]
    return lines


def known_circles(root: Path) -> list[list[str]]:
    """The circles of folders that the list names: `ROOM ROOM …`, one to a line."""
    path = root / KNOWN
    lines = path.read_text().splitlines() if path.exists() else []
    return [sorted(line.split()) for line in lines if line.strip() and not line.startswith("#")]


def all_arrows(root: Path) -> Arrows:
    """The imports of all that is read here."""
    arrows = rust_arrows(root)
    for folder in PYTHON:
        arrows |= python_arrows(root, folder)
    return arrows


def problems(root: Path) -> list[str]:
    """Circles of files, circles of folders that are not known, and known ones that are no more."""
    arrows, known = all_arrows(root), known_circles(root)
    found = folder_circles(arrows)
    gone = [f"{KNOWN}: this circle is no more: {' '.join(circle)}" for circle in known if circle not in found]
    return report(arrows) + report_folders(arrows, known) + gone


def main() -> int:
    """Prints the circles; 1 if there is one that nobody knows of."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    lines = problems(root)
    print("\n".join(lines) or f"modules: no circles, {len(known_circles(root))} known circles of folders")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
