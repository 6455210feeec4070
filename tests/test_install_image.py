"""The container image that `make dist` built, run by podman as its users run it: their user, a read-only root, SIGTERM;
and those for SageMaker and for CUDA, which are built here from the same program.

The images have neither torch nor numpy, and a base made of Debian's packages: see tests/image-base.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.archives import Store
from harness.artefacts import ROOT, artefact
from harness.server import BOUND, FREE_ADDRESSES, SERVED
from harness.wait import until

pytestmark = pytest.mark.heavy

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
BUILD_SECONDS = 1200
INFERENCE = """
def model_fn(model_dir):
    return model_dir

def transform_fn(model, body, content_type, accept):
    return f"{model} {body.decode()}"
"""


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


@pytest.fixture(scope="module")
def image() -> str:
    """The image, loaded from the file."""
    loaded = podman("load", "--quiet", "--input", artefact("jitney-*-image.tar"))
    return loaded.rpartition("Loaded image: ")[2].strip()


def built(image: str, stage: str, *given: str) -> str:
    """The image of another stage of the Dockerfile: with the program that the image has, and without torch as that."""
    named = f"localhost/jitney-test-{stage}"
    given = (*given, f"PROGRAM={image.replace('/jitney:', '/jitney-program:')}", "PYTHON_PACKAGES=")
    given += tuple(shlex.split(os.environ.get("IMAGE_ARGS", "")))
    flags = [word for argument in given for word in ("--build-arg", argument)]
    how = ["--isolation", "chroot", "--format", "docker", "--target", stage, "--tag", named]
    run(["buildah", *STORAGE, "bud", "--quiet", *how, *flags, str(ROOT)], seconds=BUILD_SECONDS)
    return named


@pytest.fixture(scope="module")
def sagemaker(image: str) -> str:
    """The image for SageMaker. It names what it stands on: Debian's buildah does not find that stage."""
    return built(image, "sagemaker", f"SAGEMAKER_BASE={image}")


@pytest.fixture(scope="module")
def gpu(image: str) -> str:
    """The image for CUDA."""
    return built(image, "gpu")


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


@pytest.fixture
def container(image: str, tmp_path: Path) -> Iterator[Container]:
    """The image as it is documented."""
    container = of_torchserve(image, tmp_path)
    yield container
    container.end()


def ready(container: Container) -> str:
    """Where it serves, once the model is loaded."""
    url = until(container.addresses, "it starts", 180)["inference"]
    until(lambda: requests.get(f"{url}/ping", timeout=120).status_code == 200, "the model is loaded", 120)
    return url


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
    known = inspected(image)
    config = known["Config"]
    assert set(config["ExposedPorts"]) == {f"{port}/tcp" for port in (8080, 8081, 8082, 7070, 7071)}
    assert config["User"] == "1000:1000" and config["WorkingDir"] == HOME
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert known["Healthcheck"]["Test"] == ["CMD", "healthcheck"]


def test_the_image_for_sagemaker_serves_the_folder_of_a_model_as_root(sagemaker: str, tmp_path: Path) -> None:
    config = inspected(sagemaker)["Config"]
    assert config["User"] == "root"
    told = {name: value for name, value in config["Labels"].items() if name.startswith("com.amazonaws.sagemaker.")}
    kinds = ("accept-bind-to-port", "multi-models")
    assert told == {f"com.amazonaws.sagemaker.capabilities.{kind}": "true" for kind in kinds}
    code = tmp_path / "model" / "code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(INFERENCE)
    flags = ["--volume", f"{code.parent}:/opt/ml/model", "--env", "JITNEY_WORKERS=1", "--env", "JITNEY_HOST=127.0.0.1"]
    container = Container(sagemaker, tmp_path, *flags, "--env", "JITNEY_PORT=0", command=("serve",))
    try:
        url = ready(container)
        answer = requests.post(f"{url}/invocations", data=b"hello", timeout=120)
        assert answer.text == "/opt/ml/model hello", container.printed
        assert podman("exec", container.name, "id", "-u").strip() == "0"
    finally:
        code = container.end()
    assert code == 0, container.printed


def test_the_image_for_cuda_asks_for_all_gpus_and_serves_without_one(gpu: str, tmp_path: Path) -> None:
    config = inspected(gpu)["Config"]
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= set(config["Env"])
    assert config["User"] == "1000:1000"
    container = of_torchserve(gpu, tmp_path)
    try:
        url = ready(container)
        assert requests.post(f"{url}/predictions/echo", data=b"hello", timeout=120).content == b"hello"
    finally:
        code = container.end()
    assert code == 0, container.printed
