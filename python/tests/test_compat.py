"""torchserve-compat: TorchServe's command names, installed and run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import wire

PROJECT = Path(__file__).parent.parent / "torchserve-compat"

# Tells what it was run as, and exits as a program of its own would.
JITNEY = '#!/bin/sh\necho jitney "$@"\nexit 7\n'


@pytest.fixture(scope="module")
def bin_dir(tmp_path_factory):
    home = tmp_path_factory.mktemp("venv")
    venv.create(home)
    # A copy: pip leaves its build beside the source.
    source = shutil.copytree(PROJECT, home / "source")
    command = [sys.executable, "-m", "pip", "--python", home / "bin/python", "install", "--quiet", str(source)]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=wire.PATIENCE_SECONDS, cwd=home)
    if installed.returncode != 0:
        pytest.skip(f"pip cannot install here: {installed.stderr[-300:]}")
    return home / "bin"


def run(command, *args, env=None):
    return subprocess.run(
        [command, *args], capture_output=True, text=True, timeout=wire.PATIENCE_SECONDS, env=env or {"PATH": "/usr/bin"}
    )


@pytest.mark.parametrize(
    "name, expected",
    [
        ("torchserve", "torchserve --start --models a b=c"),
        ("torch-model-archiver", "archive --start --models a b=c"),
        ("torch-workflow-archiver", "archive-workflow --start --models a b=c"),
    ],
)
def test_each_name_becomes_the_jitney_command(bin_dir, tmp_path, name, expected):
    program = tmp_path / "jitney"
    program.write_text(JITNEY)
    program.chmod(0o755)
    for env in ({"PATH": f"{tmp_path}:/usr/bin:/bin"}, {"PATH": "/usr/bin:/bin", "JITNEY_BIN": str(program)}):
        ran = run(bin_dir / name, "--start", "--models", "a", "b=c", env=env)
        assert (ran.returncode, ran.stdout) == (7, f"jitney {expected}\n"), ran.stderr


def test_without_jitney_a_sentence_says_so(bin_dir):
    ran = run(bin_dir / "torchserve", env={"PATH": "/nowhere"})
    assert ran.returncode == 1 and "jitney is not installed" in ran.stderr
