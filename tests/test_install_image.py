"""The container image that `make dist` built, run by podman as its users run it: their user, a read-only root, SIGTERM;
and those for SageMaker and for CUDA, which are built here from the same program.

The images have neither torch nor numpy, and a base made of Debian's packages: see tests/image-base.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from harness.artefacts import ROOT, artefact
from harness.containers import ALIKE, HOME, STORAGE, Container, inspected, loaded, of_torchserve, podman, ready, run
from harness.wait import until

pytestmark = pytest.mark.heavy

BUILD_SECONDS = 1200
INFERENCE = """
def model_fn(model_dir):
    return model_dir

def transform_fn(model, body, content_type, accept):
    return f"{model} {body.decode()}"
"""


@pytest.fixture(scope="module")
def image() -> str:
    """The image, loaded from the file."""
    return loaded(artefact(f"jitney-*-{platform.machine()}-image.tar"))


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


@pytest.fixture
def container(image: str, tmp_path: Path) -> Iterator[Container]:
    """The image as it is documented."""
    container = of_torchserve(image, tmp_path)
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
