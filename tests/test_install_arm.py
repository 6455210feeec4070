"""The static program for aarch64, run by qemu: it answers the demo."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.artefacts import ROOT, artefact
from harness.server import Server

pytestmark = pytest.mark.heavy

START_SECONDS = 600.0
RUN_SECONDS = 300.0
AARCH64 = 183
"""The machine's number in the head of an ELF file."""


@pytest.fixture
def program() -> Path:
    """What `make test-arm` built."""
    return artefact("jitney-*-aarch64-linux-static")


@pytest.fixture
def qemu() -> str:
    """The program that runs others of this machine."""
    found = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    return found or pytest.fail("there is no qemu-aarch64: `make setup WITH=qemu` installs it")


@pytest.fixture
def demo(program: Path, qemu: str, tmp_path: Path) -> Iterator[Server]:
    """A server with the embedded model."""
    server = Server(program, tmp_path / "server", ["demo"], under=[qemu], start_seconds=START_SECONDS)
    yield server.started()
    server.end()


def test_the_program_is_for_the_machine(program: Path, qemu: str) -> None:
    assert int.from_bytes(program.read_bytes()[18:20], "little") == AARCH64
    done = subprocess.run([qemu, program, "--version"], capture_output=True, text=True, timeout=RUN_SECONDS)
    assert (done.returncode, done.stdout.split()[0]) == (0, "jitney"), done.stderr


def test_the_demo_is_answered(demo: Server) -> None:
    answer = demo.predict("magika", (ROOT / "Cargo.toml").read_bytes())
    assert max(answer.json(), key=answer.json().get) == "toml", answer.text
