"""What `make dist` builds for aarch64, run by qemu: the program, the image and the wheel."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from harness.artefacts import ROOT, artefact
from harness.containers import ALIKE, Container, loaded, of_torchserve, podman, ready
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


@pytest.fixture(scope="module")
def image() -> str:
    """The image, whose programs the kernel has qemu run."""
    return loaded(artefact("jitney-*-aarch64-image.tar"))


@pytest.fixture
def container(image: str, tmp_path: Path) -> Iterator[Container]:
    """The image with an archive."""
    container = of_torchserve(image, tmp_path)
    yield container
    container.end()


def test_the_program_is_for_the_machine(program: Path, qemu: str) -> None:
    assert int.from_bytes(program.read_bytes()[18:20], "little") == AARCH64
    done = subprocess.run([qemu, program, "--version"], capture_output=True, text=True, timeout=RUN_SECONDS)
    assert (done.returncode, done.stdout.split()[0]) == (0, "jitney"), done.stderr


def test_the_demo_is_answered(demo: Server) -> None:
    answer = demo.predict("magika", (ROOT / "Cargo.toml").read_bytes())
    assert max(answer.json(), key=answer.json().get) == "toml", answer.text


def test_the_image_serves_an_archive_and_drains(container: Container) -> None:
    url = ready(container, START_SECONDS)
    assert podman("exec", container.name, "uname", "--machine").strip() == "aarch64"
    answer = requests.post(f"{url}/predictions/echo", data=b"hello", timeout=RUN_SECONDS)
    assert answer.content == b"hello", container.printed
    assert container.end() == 0, container.printed


def test_the_wheel_brings_the_program_and_the_package(image: str) -> None:
    wheel = artefact("jitney-*_aarch64.whl")
    told = "import importlib.metadata as m, jitney; print(jitney.batch.__name__, m.version('jitney'))"
    steps = (
        f'pip install --quiet --no-index /dist/*_aarch64.whl && /home/venv/bin/jitney --version && python3 -c "{told}"'
    )
    inside = ["--volume", f"{wheel.parent}:/dist:ro", "--entrypoint", "sh", image, "-c", steps]
    program, package = podman("run", "--rm", *ALIKE, *inside).splitlines()[-2:]
    assert package == f"batch {wheel.name.split('-')[1]}" and program.split()[0] == "jitney"
