"""The container image that `make dist` built, run by podman as its users run it: their user, a read-only root, SIGTERM.

The image has neither torch nor numpy, and a base made of Debian's packages: see tests/image-base.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.artefacts import artefact
from harness.server import BOUND, FREE_ADDRESSES
from harness.wait import until

pytestmark = pytest.mark.heavy

# No control groups of systemd's, no network, timers and limits of its own: tests must not expect more of a machine.
PODMAN = ["podman", *shlex.split(os.environ.get("BUILDAH_FLAGS", "")), "--runtime=runc", "--cgroup-manager=cgroupfs"]
ALIKE = [
    "--network=host",
    "--log-driver=none",
    "--no-healthcheck",
    "--ulimit=nofile=1024:1024",
    "--ulimit=nproc=1024:1024",
]
HOME = "/home/model-server"
RUN_SECONDS = 300


def podman(*arguments: str | Path, code: int | None = 0) -> str:
    """Runs podman on the storage of the build."""
    command = [*PODMAN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert code is None or done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def image() -> str:
    """The image, loaded from the file."""
    loaded = podman("load", "--quiet", "--input", artefact("jitney-*-image.tar"))
    return loaded.rpartition("Loaded image: ")[2].strip()


class Container:
    """A running container and what it prints."""

    def __init__(self, image: str, home: Path, *flags: str) -> None:
        self.name = f"jitney-test-{uuid.uuid4().hex}"
        self.out = home / "out"
        command = [*PODMAN, "run", "--rm", "--name", self.name, *ALIKE, *flags, image]
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    @property
    def printed(self) -> str:
        """What it printed so far."""
        return self.out.read_text(errors="replace")

    def addresses(self) -> dict[str, str]:
        """Its addresses, once it has started."""
        assert self.process.poll() is None, self.printed
        printed = self.printed
        return {name.lower(): url for name, url in BOUND.findall(printed)} if "Model server started." in printed else {}

    def end(self) -> int:
        """`docker stop`: SIGTERM, and the exit code."""
        if self.process.poll() is None:
            podman("kill", "--signal", "TERM", self.name, code=None)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            podman("kill", self.name, code=None)
            raise


@pytest.fixture
def container(image: str, tmp_path: Path) -> Iterator[Container]:
    """The image with a mounted store and configuration on free ports, as an ordinary user, on a read-only root."""
    store = Store(tmp_path / "store")
    store.mar("echo")
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + f"model_store={HOME}/model-store\nload_models=echo.mar\n")
    for path in (config, store.path, *store.path.iterdir()):
        path.chmod(0o755)
    mounts = ["--volume", f"{store.path}:{HOME}/model-store:ro", "--volume", f"{config}:{HOME}/config.properties:ro"]
    writable = ["--tmpfs", f"{HOME}/tmp", "--tmpfs", f"{HOME}/logs"]
    container = Container(image, tmp_path, "--read-only", *writable, *mounts)
    yield container
    container.end()


def test_it_serves_as_an_ordinary_user_on_a_read_only_root_and_drains(container: Container) -> None:
    urls = until(container.addresses, "it starts", 180)
    ping = urls["inference"] + "/ping"
    until(lambda: requests.get(ping, timeout=120).json() == {"status": "Healthy"}, "the model is loaded", 120)
    answer = requests.post(urls["inference"] + "/predictions/echo", data=b"hello", timeout=120)
    assert answer.content == b"hello", container.printed
    inside = ["exec", container.name]
    assert podman(*inside, "sh", "-c", "id -u; whoami; touch /new 2>&1 || true").split()[:2] == ["1000", "model-server"]
    podman(*inside, "touch", "/new", code=1)
    podman("exec", "--env", f"JITNEY_HEALTH_URL={ping}", container.name, "healthcheck")
    podman("exec", "--env", "JITNEY_HEALTH_URL=http://127.0.0.1:1/ping", container.name, "healthcheck", code=1)
    assert container.end() == 0, container.printed
    assert "drained" in container.printed


def test_the_command_names_of_torchserve_are_there(image: str) -> None:
    assert podman("run", "--rm", *ALIKE, image, "torchserve", "--version").strip() == "TorchServe Version is 0.12.0"


def test_the_image_tells_its_ports_user_and_health(image: str) -> None:
    [known] = json.loads(podman("image", "inspect", image))
    config = known["Config"]
    assert set(config["ExposedPorts"]) == {f"{port}/tcp" for port in (8080, 8081, 8082, 7070, 7071)}
    assert config["User"] == "1000:1000" and config["WorkingDir"] == HOME
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert known["Healthcheck"]["Test"] == ["CMD", "healthcheck"]
