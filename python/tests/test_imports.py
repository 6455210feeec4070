"""The packages import each other one way, and no modules form a circle, also not inside functions."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("jitney", "ts", "model_archiver", "workflow_archiver")
FORBIDDEN = [
    ("jitney", ("ts", "model_archiver", "workflow_archiver")),
    ("jitney.torchserve", ("jitney.worker",)),
    ("jitney.worker", ("jitney.client", "jitney.handle")),
    ("jitney.client", ("jitney.handle", "jitney.worker")),
    ("jitney.handle", ("jitney.worker",)),
    ("ts", ("jitney.worker", "jitney.client", "jitney.handle")),
]


def modules() -> dict[str, Path]:
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    return {name.removesuffix(".__init__"): file for name, file in names.items()}


def imports(name: str, file: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports, wherever in it; names only for type checkers count too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else str(node.module))
    return {one for one in found if one in known and one != name}


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imports(name, file, known) for name, file in known.items()}


def test_no_modules_form_a_circle(graph):
    assert list(TopologicalSorter(graph).static_order())  # Raises CycleError with the circle in it.


@pytest.mark.parametrize(("package", "others"), FORBIDDEN)
def test_packages_import_one_way(graph, package, others):
    inside = {name: targets for name, targets in graph.items() if f"{name}.".startswith(f"{package}.")}
    assert inside
    wrong = [
        (name, target) for name, targets in inside.items() for target in targets
        if any(f"{target}.".startswith(f"{other}.") for other in others)
    ]  # fmt: skip
    assert wrong == []
