"""Containers of the images that `make dist` builds, run by podman: on the storage of the build, with what a machine for
tests may lack left out.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import uuid
from pathlib import Path
from typing import Any

import requests

from harness.archives import Store
from harness.server import BOUND, FREE_ADDRESSES, SERVED
from harness.wait import until

# No control groups of systemd's, no network, timers and limits of its own: tests must not expect more of a machine.
STORAGE = shlex.split(os.environ.get("BUILDAH_FLAGS", ""))
PODMAN = ["podman", *STORAGE, "--runtime=runc", "--cgroup-manager=cgroupfs"]
ALIKE = [
    "--network=host",
    "--log-driver=none",
    "--no-healthcheck",
    "--ulimit=nofile=1024:1024",
    "--ulimit=nproc=1024:1024",
]
HOME = "/home/model-server"
RUN_SECONDS = 300


def run(command: list[str], code: int | None = 0, seconds: float = RUN_SECONDS) -> str:
    """Runs a program and returns what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert code is None or done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def podman(*arguments: str | Path, code: int | None = 0) -> str:
    """Runs podman on the storage of the build."""
    return run([*PODMAN, *map(str, arguments)], code)


def inspected(image: str) -> dict[str, Any]:
    """What an image says of itself."""
    [known] = json.loads(podman("image", "inspect", image))
    return known


def loaded(file: Path) -> str:
    """The name of an image in a file, once it is loaded."""
    return podman("load", "--quiet", "--input", file).rpartition("Loaded image: ")[2].strip()


class Container:
    """A running container and what it prints."""

    def __init__(self, image: str, home: Path, *flags: str, command: tuple[str, ...] = ()) -> None:
        self.name = f"jitney-test-{uuid.uuid4().hex}"
        self.out = home / "out"
        command = [*PODMAN, "run", "--rm", "--name", self.name, *ALIKE, *flags, image, *command]
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
        started = {"Model server started.": BOUND, "Try:": SERVED}
        found = [told.findall(printed) for line, told in started.items() if line in printed]
        return {name.lower(): url for urls in found for name, url in urls}

    def end(self) -> int:
        """`docker stop`: SIGTERM, and the exit code."""
        if self.process.poll() is None:
            podman("kill", "--signal", "TERM", self.name, code=None)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            podman("kill", self.name, code=None)
            raise


def of_torchserve(image: str, tmp_path: Path) -> Container:
    """An image with a mounted store and configuration on free ports, as an ordinary user, on a read-only root."""
    store = Store(tmp_path / "store")
    store.mar("echo")
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES + f"model_store={HOME}/model-store\nload_models=echo.mar\n")
    for path in (config, store.path, *store.path.iterdir()):
        path.chmod(0o755)
    mounts = ["--volume", f"{store.path}:{HOME}/model-store:ro", "--volume", f"{config}:{HOME}/config.properties:ro"]
    writable = ["--tmpfs", f"{HOME}/tmp", "--tmpfs", f"{HOME}/logs"]
    return Container(image, tmp_path, "--read-only", *writable, *mounts)


def ready(container: Container, seconds: float = 180) -> str:
    """Where it serves, once the model is loaded."""
    url = until(container.addresses, "it starts", seconds)["inference"]
    until(lambda: requests.get(f"{url}/ping", timeout=120).status_code == 200, "the model is loaded", seconds)
    return url
