"""`jitney containerize`: a Dockerfile whose command serves what was named, and an image where buildah is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.server import ASK_SECONDS, Server

APP = """
import jitney


@jitney.batch(max_batch_size=8)
def shout(text: list[str]) -> list[str]:
    return [one.upper() for one in text]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a definition and what it needs."""
    home = tmp_path / "My Shop"
    home.mkdir()
    (home / "app.py").write_text(APP)
    (home / "requirements.txt").write_text("numpy\n")
    return home


def containerize(
    binary: Path, folder: Path, *words: str, path: str = "/nonexistent"
) -> subprocess.CompletedProcess[str]:
    """Runs it there, by default without a buildah."""
    env = {**os.environ, "PATH": path}
    command = [str(binary), "containerize", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=ASK_SECONDS)


def told(folder: Path, word: str) -> list[str]:
    """The list that an instruction of the Dockerfile has."""
    found = re.search(rf"^{word} (\[.*\])$", (folder / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    return json.loads(found[1])


def test_the_images_command_serves_the_definition(binary: Path, folder: Path, start: Callable[..., Server]) -> None:
    made = containerize(binary, folder, "app.py:shout")
    assert made.returncode == 0, made.stderr
    assert "docker build -t my-shop ." in made.stderr
    assert (folder / "jitney.program").read_bytes() == binary.read_bytes()
    text = (folder / "Dockerfile").read_text()
    assert 'COPY ["requirements.txt","/tmp/requirements.txt"]' in text and "USER 1000:1000" in text
    entry, words = told(folder, "ENTRYPOINT"), told(folder, "CMD")
    assert entry == ["jitney", "serve"] and words[:1] == ["app.py:shout"]
    server = start("serve", *words, cwd=folder)
    listens = re.search(r"^API +(http://\S+)/docs$", server.stdout, re.MULTILINE)
    assert listens is not None
    assert requests.post(f"{listens[1]}/shout", data=b"good day", timeout=ASK_SECONDS).text == "GOOD DAY"


def test_its_dockerfile_has_no_fault_that_hadolint_knows(binary: Path, folder: Path) -> None:
    hadolint = shutil.which("hadolint")
    assert hadolint is not None, "hadolint is in the environment of these tests"
    assert containerize(binary, folder, "app.py:shout").returncode == 0
    checked = subprocess.run([hadolint, folder / "Dockerfile"], capture_output=True, text=True, timeout=ASK_SECONDS)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_buildah_builds_it(binary: Path, folder: Path, tmp_path: Path) -> None:
    """The program of that name notes how it was called."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "buildah").write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/called"\nexit $(/bin/cat "{tmp_path}/code")\n')
    (tools / "buildah").chmod(0o755)
    (tmp_path / "code").write_text("0")
    made = containerize(binary, folder, "app.py:shout", "--tag", "shop:1", path=str(tools))
    assert (made.returncode, "built shop:1" in made.stderr) == (0, True), made.stderr
    assert (tmp_path / "called").read_text() == "bud --format docker --tag shop:1 .\n"
    (tmp_path / "code").write_text("3")
    failed = containerize(binary, folder, "app.py:shout", "--force", path=str(tools))
    assert failed.returncode == 1 and "buildah failed" in failed.stderr
    (tmp_path / "called").unlink()
    alone = containerize(binary, folder, "app.py:shout", "--force", "--no-build", path=str(tools))
    assert alone.returncode == 0 and not (tmp_path / "called").exists()


def test_what_is_not_in_the_folder_is_refused(binary: Path, folder: Path) -> None:
    for words, said in [
        (["../app.py:shout"], "is not below this folder"),
        (["other.py:shout"], "no such file: other.py"),
        (["app.py:shout", "--requirements", "none.txt"], "no such file: none.txt"),
    ]:
        refused = containerize(binary, folder, *words)
        assert (refused.returncode, said in refused.stderr) == (64, True), refused.stderr
    assert not (folder / "Dockerfile").exists()
    (folder / "Dockerfile").write_text("FROM mine\n")
    kept = containerize(binary, folder, "app.py:shout")
    assert (kept.returncode, "--force" in kept.stderr) == (1, True)
    assert (folder / "Dockerfile").read_text() == "FROM mine\n"
