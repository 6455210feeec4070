"""The snippets of docs/guides/definitions.md and docs/guides/handles.md, run as they stand.

Only the addresses are this test's own, and the deadlines, which a slow machine could not keep.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.package import ROOT
from harness.server import Server

RUN_SECONDS = 120
SNIPPET = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: str, kind: str) -> list[str]:
    """The blocks of a page, in order."""
    return [text for word, text in SNIPPET.findall((ROOT / "docs" / "guides" / page).read_text()) if word == kind]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the pages tell to write."""
    home = tmp_path_factory.mktemp("docs")
    for text in [*snippets("definitions.md", "python"), *snippets("handles.md", "python")]:
        name = re.match(r"# (\w+\.py)\n", text)
        if name:
            (home / name[1]).write_text(patient(text))
    return home


@pytest.fixture(scope="module")
def served(binary: Path, home: Path) -> Iterator[Server]:
    server = Server(binary, home / "server", ["serve", "shop:Shop", "norms:norms"], cwd=home)
    yield server.started()
    server.end()


def run(home: Path, binary: Path, *command: str) -> str:
    """What a command prints; it must end well."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    env["PATH"] = f"{binary.parent}:{env['PATH']}"
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def patient(text: str) -> str:
    """The same with deadlines that no call misses."""
    return re.sub(r"timeout=[\d.]+", "timeout=60", re.sub(r"max_latency_ms=\d+", "max_latency_ms=60000", text))


def here(server: Server, text: str) -> str:
    """The same with the addresses of the server under test."""
    for port, name in (("8080", "inference"), ("8081", "management")):
        text = text.replace(f"http://127.0.0.1:{port}", server.urls[name])
    return patient(text)


def test_the_commands_of_the_page_on_definitions_do_what_it_says(served, home, binary):
    commands = [
        line.partition("    #")[0].strip() for text in snippets("definitions.md", "bash") for line in text.splitlines()
    ]
    asked = [line for line in commands if line.startswith("curl")]
    said = [run(home, binary, *shlex.split(here(served, line)), "--silent") for line in asked]
    assert said[:3] == ["6.0", "1.5", "word 0 word 1 word 2 word 3 word 4 "]
    metadata, answer = map(json.loads, said[3:])
    assert metadata["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
    assert answer["outputs"] == [{"name": "output", "datatype": "FP32", "shape": [1], "data": [5.0]}]
    (check,) = [line for line in commands if line.startswith("jitney check")]
    assert "Shop/price\n  ok " in run(home, binary, *shlex.split(check))


def test_the_unit_test_of_the_page_passes(home, binary):
    assert "1 passed" in run(
        home, binary, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"
    )


def test_the_program_of_the_page_on_handles_runs(home, binary):
    said = run(home, binary, sys.executable, "program.py")
    assert said.startswith("[1.5, 3.0, 4.5, 6.0, 7.5] http://127.0.0.1:")


def test_the_snippets_of_the_page_on_handles_run_one_after_another(served, home, binary):
    plain = [text for text in snippets("handles.md", "python") if not text.startswith("# ")]
    (home / "all.py").write_text("import asyncio\n" + here(served, "\n".join(plain)))
    said = run(home, binary, sys.executable, "all.py").splitlines()
    assert said[0].startswith("4.0 Timing(")
    assert said[1] == "[2.0, 1.5]"
    assert said[2:4] == ["2.0", "word 0 word 1 "]
    assert said[4].startswith("{'Shop': ") and said[4].endswith("64")
    assert len(said) == 5


def test_every_point_of_a_platforms_contract_has_a_test_that_exists() -> None:
    page = (ROOT / "docs/operations/platforms.md").read_text()
    found, points = page.partition("## Point by point")[0], page.partition("## Point by point")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in points.splitlines() if line[:1] == "|"][
        2:
    ]
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    tests = set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))
    for point, _, named in rows:
        names = re.findall(r"`(test_\w+)`", named)
        assert names and set(names) <= tests, f"{point}: {sorted(set(names) - tests)}"
    platforms = re.findall(r"^\| `([a-z-]+)`", found.partition("| found by |")[2].partition("\n\n")[0], re.MULTILINE)
    held = {word for _, held_by, _ in rows for word in re.findall(r"[\w-]+", held_by)}
    assert len(platforms) == 8 and set(platforms) <= held, set(platforms) - held
