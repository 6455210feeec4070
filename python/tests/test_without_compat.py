"""The layers of other products' APIs can be taken out in one piece: the package works without their folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import wire

ROOT = Path(__file__).parents[1]
PACKAGES = ("jitney", "ts")
SUITES = ("test_definition.py", "test_defined_worker.py", "test_http_mapping.py", "test_plugin.py")
IMPORT_ALL = """
import importlib, pkgutil, jitney
names = [one.name for one in pkgutil.walk_packages(jitney.__path__, "jitney.") if not one.name.endswith("__main__")]
assert "jitney.worker.loop" in names and not any(name.startswith("jitney.compat") for name in names)
for name in names:
    if not name.startswith("jitney.gpu."):  # These need torch.
        importlib.import_module(name)
for name in jitney.__all__:
    getattr(jitney, name)
"""


@pytest.fixture(scope="module")
def without_compat(tmp_path_factory):
    root = tmp_path_factory.mktemp("python")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__", "compat"))
    shutil.copytree(ROOT / "tests", root / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def run(root: Path, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True,
        timeout=wire.PATIENCE_SECONDS,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]


def test_every_module_and_every_public_name_can_be_imported(without_compat):
    run(without_compat, "-c", IMPORT_ALL)


@pytest.mark.parametrize("suite", SUITES)
def test_definitions_workers_and_plugins_work(without_compat, suite):
    run(without_compat, "-m", "pytest", "-q", f"tests/{suite}")
