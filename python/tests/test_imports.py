"""The packages import each other one way, and no modules form a circle, also not inside functions."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import jitney

ROOT = Path(__file__).parents[1]
PACKAGES = ("jitney", "ts", "model_archiver", "workflow_archiver")
ROOMS = [
    "call",
    "files",
    "values",
    "wire",
    "gpu",
    "machine",
    "definition",
    "http",
    "packing",
    "execution",
    "loaders",
    "client",
    "handle",
    "torchserve",
    "triton",
    "worker",
    "plugin",
    "offline",
    "cluster",
    "check",
    "compat",
]
"""The folders of `jitney` from the ground up, as its first lines list them; the top folder stands above all of them."""
TOP_MAX = 15
FORBIDDEN = [
    ("jitney", ("ts", "model_archiver", "workflow_archiver")),
    *((f"jitney.{room}", tuple(f"jitney.{above}" for above in ROOMS[place + 1 :])) for place, room in enumerate(ROOMS)),
    ("jitney.torchserve", tuple(f"jitney.{room}" for room in ROOMS if room != "torchserve")),
    ("ts", ("jitney.worker", "jitney.client", "jitney.handle", "jitney.compat")),
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


def test_the_first_lines_of_the_package_list_its_rooms_from_the_ground_up():
    assert sorted(file.parent.name for file in (ROOT / "jitney").glob("*/__init__.py")) == sorted(ROOMS)
    listed = [line.strip().split("  ")[0] for line in (jitney.__doc__ or "").splitlines() if line.startswith("    ")]
    assert " ".join(listed).split() == ROOMS


def test_the_top_folder_holds_little_and_no_room_imports_it(graph):
    top = {name for name in graph if name == "jitney" or (name.startswith("jitney.") and name.count(".") == 1)}
    top -= {f"jitney.{room}" for room in ROOMS}
    assert "jitney.testing" in top and len(top) <= TOP_MAX
    inside = {name: targets & top for name, targets in graph.items() if name.startswith("jitney.") and name not in top}
    assert [name for name, targets in inside.items() if targets] == []


def test_a_worker_imports_no_library_that_few_models_need() -> None:
    """It starts with every model, and again after every failure."""
    rare = {"asyncio", "concurrent.futures", "jitney.definition.definition", "ssl", "zipfile", "uuid", "numpy"}
    told = f"import sys, jitney.worker.__main__; print(*sorted({rare!r} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.split() == []


def test_names_are_found_where_type_checkers_look_for_them() -> None:
    [block] = [node for node in ast.parse(Path(jitney.__file__).read_text()).body if isinstance(node, ast.If)][-1:]
    told = {one.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for one in node.names}
    assert told == jitney._MODULE_OF and sorted(told) == sorted(jitney.__all__)
    assert all(hasattr(jitney, name) for name in told if name != "map_batches")  # Which needs Ray.
