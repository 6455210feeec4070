"""The fixture `jitney_server`, as a user's own tests use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

APP = """
import jitney


@jitney.batch(max_batch_size=8)
def shout(text: list[str]) -> list[str]:
    return [one.upper() for one in text]
"""

TESTS = """
import json
import urllib.request

from app import shout


def test_it(jitney_server):
    model = jitney_server(shout, workers=1, program={program!r})
    assert model(text="tea") == "TEA"
    assert urllib.request.urlopen(f"{{model.url}}/shout", b"milk").read() == b"MILK"
"""


def test_a_test_of_a_user_gets_a_server(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "test_app.py").write_text(TESTS.format(program=str(binary)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "jitney.pytest_plugin", "test_app.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr
