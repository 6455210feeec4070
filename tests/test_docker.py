"""The image without a container engine: its layout in a plain directory, and its entry point run as it is.

What a container adds (the user, the ports mapped outside) is read off the Dockerfile, which `make lint` checks too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.processes import MARK, marked
from harness.server import BOUND, FREE_ADDRESSES, SERVED
from harness.wait import until

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
HOME = "/home/model-server"


class Box:
    """The image's directories below a root of the test's own, and the commands it has on its path."""

    def __init__(self, binary: Path, root: Path) -> None:
        self.root = root
        self.home = root / HOME.lstrip("/")
        for name in ("tmp", "wf-store"):
            (self.home / name).mkdir(parents=True)
        self.store = Store(self.home / "model-store")
        names = root / "usr/local/bin"
        names.mkdir(parents=True)
        (names / "torchserve").write_text(f'#!/bin/sh\nexec "{binary}" torchserve "$@"\n')
        (names / "torchserve").chmod(0o755)
        (names / "jitney").symlink_to(binary)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JITNEY_", "TS_", "TMPDIR"))}
        path = f"{names}:{kept['PATH']}"
        self.env = {
            **kept,
            "PATH": path,
            "TEMP": str(self.home / "tmp"),
            "JITNEY_IMAGE_ROOT": str(root),
            MARK: root.name,
        }

    def run(self, *arguments: str) -> subprocess.Popen[bytes]:
        """`docker run IMAGE arguments`; without any the image's own CMD."""
        command = re.search(r'^CMD \["(\w+)"\]$', DOCKERFILE, re.MULTILINE)[1]
        entry = ROOT / "docker/dockerd-entrypoint.sh"
        with (self.root / "out").open("wb") as out:
            return subprocess.Popen([entry, *(arguments or (command,))], cwd=self.home, env=self.env, stdout=out)

    @property
    def said(self) -> str:
        """What the container said."""
        return (self.root / "out").read_text()


@pytest.fixture
def box(binary: Path, tmp_path: Path) -> Box:
    """A container without its walls."""
    root = tmp_path / f"image-{os.getpid()}"
    root.mkdir()
    return Box(binary, root)


def own_config(box: Box) -> str:
    """The image's own configuration, below the box's root and on free ports."""
    text = (ROOT / "docker/config.properties").read_text().replace(HOME, str(box.home))
    return re.sub(r"^(inference|management|metrics)_address=.*\n", "", text, flags=re.MULTILINE) + FREE_ADDRESSES


def mounted_config(box: Box) -> str:
    """A configuration as the documents mount one over the image's: a model in it, and Java's settings."""
    return own_config(box) + (
        "load_models=echo.mar\n"
        'models={"echo": {"1.0": {"defaultVersion": true, "marName": "echo.mar", "minWorkers": 1, '
        '"maxWorkers": 1, "batchSize": 3, "maxBatchDelay": 100, "responseTimeout": 120}}}\n'
    )


@pytest.mark.parametrize("config", [own_config, mounted_config])
def test_the_documented_run_line_serves_and_stops(box: Box, config: Callable[[Box], str]) -> None:
    box.store.mar("echo")
    (box.home / "config.properties").write_text(config(box).replace("0.0.0.0", "127.0.0.1"))
    container = box.run()
    try:
        until(lambda: "Model server started." in box.said or container.poll() is not None, "it starts", 60)
        urls = {name.lower(): url for name, url in BOUND.findall(box.said)}
        assert requests.get(urls["inference"] + "/ping", timeout=120).json() == {"status": "Healthy"}
        models = requests.get(urls["management"] + "/models", timeout=120).json()["models"]
        if config is mounted_config:
            assert [model["modelName"] for model in models] == ["echo"], "without a token, as in TorchServe's image"
            answer = requests.post(urls["inference"] + "/predictions/echo", data=b"hello", timeout=120)
            assert answer.content == b"hello"
    finally:
        container.send_signal(signal.SIGTERM)
        assert container.wait(30) == 0, box.said
    until(lambda: not marked(box.root.name), "docker stop leaves no process behind")


def shown(box: Box, **variables: str) -> tuple[int, list[str]]:
    """The arguments of the server that the entry point would become, and its configuration."""
    shutil.copy(ROOT / "docker/config.properties", box.home)
    command = box.root / "usr/local/bin/torchserve"
    command.write_text('#!/bin/sh\necho "$@"\nfor last; do :; done\ncat "$last"\n')
    box.env.update({"TMPDIR": str(box.home / "tmp"), **variables})
    return box.run().wait(20), box.said.splitlines()


def test_without_a_token_only_the_container_itself_manages() -> None:
    addresses = dict(re.findall(r"^(\w+_address)=(.*)$", (ROOT / "docker/config.properties").read_text(), re.MULTILINE))
    assert addresses == {
        "inference_address": "http://0.0.0.0:8080",
        "management_address": "http://127.0.0.1:8081",
        "metrics_address": "http://0.0.0.0:8082",
        "grpc_inference_address": "0.0.0.0",
        "grpc_management_address": "127.0.0.1",
    }


def test_management_opens_to_others_with_tokens_only(box: Box) -> None:
    code, [arguments, *config] = shown(box, JITNEY_MANAGEMENT="token")
    assert code == 0 and "--disable-token-auth" not in arguments
    assert "management_address=http://0.0.0.0:8081" in config and "grpc_management_address=0.0.0.0" in config
    assert "inference_address=http://0.0.0.0:8080" in config


def test_the_variable_takes_no_other_word(box: Box) -> None:
    assert shown(box, JITNEY_MANAGEMENT="open") == (2, [])
    box.env.pop("JITNEY_MANAGEMENT")
    code, [arguments, *config] = shown(box)
    assert code == 0 and "--disable-token-auth" in arguments and "management_address=http://127.0.0.1:8081" in config


def test_on_sagemaker_the_entry_point_serves_the_folder_of_the_model(box: Box) -> None:
    code = box.root / "ml/model/code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(
        "def model_fn(model_dir):\n    return model_dir\ndef transform_fn(model, body, a, b):\n    return model\n"
    )
    box.env.update(
        SAGEMAKER_BASE_DIR=str(box.root / "ml"), JITNEY_HOST="127.0.0.1", JITNEY_PORT="0", JITNEY_WORKERS="1"
    )
    container = box.run("serve")
    try:
        until(lambda: "Try:" in box.said or container.poll() is not None, "it starts", 60)
        url = dict(SERVED.findall(box.said))["Inference"]
        until(lambda: requests.get(f"{url}/ping", timeout=120).status_code == 200, "the model is loaded")
        assert requests.post(f"{url}/invocations", data=b"x", timeout=120).text == str(code.parent)
    finally:
        container.send_signal(signal.SIGTERM)
        assert container.wait(30) == 0, box.said
    until(lambda: not marked(box.root.name), "docker stop leaves no process behind")


def test_on_cloud_run_the_entry_point_has_the_models_of_the_image(box: Box) -> None:
    box.store.mar("echo")
    others = ("MANAGEMENT", "METRICS", "GRPC", "GRPC_MANAGEMENT")
    box.env |= {
        "PORT": "0",
        "K_SERVICE": "x",
        "JITNEY_HOST": "127.0.0.1",
        **{f"JITNEY_{it}_PORT": "0" for it in others},
    }
    container = box.run("serve")
    try:
        until(lambda: "Try:" in box.said or container.poll() is not None, "it starts", 60)
        urls = dict(SERVED.findall(box.said))
        until(lambda: requests.get(f"{urls['Inference']}/ping", timeout=120).status_code == 200, "the model is loaded")
        assert requests.post(f"{urls['Inference']}/predictions/echo", data=b"x", timeout=120).text == "x"
    finally:
        container.send_signal(signal.SIGTERM)
        assert container.wait(30) == 0, box.said
    until(lambda: not marked(box.root.name), "nothing is left")


def test_kserves_runtime_for_torchserve_keeps_what_its_configuration_says(box: Box) -> None:
    models = box.root / "mnt/models"
    (models / "config").mkdir(parents=True)
    Store(models / "model-store").mar("echo")
    snapshot = {"minWorkers": 1, "maxWorkers": 2, "batchSize": 4, "maxBatchDelay": 10, "responseTimeout": 60}
    snapshot |= {"defaultVersion": True, "marName": "echo.mar"}
    named = {"name": "startup.cfg", "modelCount": 1, "models": {"mnist": {"1.0": snapshot}}}
    properties = FREE_ADDRESSES + f"enable_envvars_config=true\nmodel_snapshot={json.dumps(named)}\n"
    (models / "config" / "config.properties").write_text(properties + "disable_token_authorization=true\n")
    store, config = f"--model-store={models}/model-store", f"--ts-config={models}/config/config.properties"
    box.env |= {"JITNEY_KSERVE_PORT": "0", "JITNEY_KSERVE_GRPC_PORT": "0"}
    container = box.run("torchserve", "--start", store, config)
    try:
        until(lambda: "Model server started." in box.said or container.poll() is not None, "it starts", 60)
        assert container.poll() is None, "the container lives as long as the server"
        urls = dict(BOUND.findall(box.said))
        described = requests.get(f"{urls['Management']}/models/mnist", timeout=120).json()[0]
        kept = {key: described[key] for key in ("minWorkers", "maxWorkers", "batchSize", "maxBatchDelay")}
        assert kept == {"minWorkers": 1, "maxWorkers": 2, "batchSize": 4, "maxBatchDelay": 10}
        asked = requests.post(f"{urls['Inference']}/predictions/mnist", data=b"hi", timeout=120)
        assert asked.text == "hi"
        second = re.search(r"predictions are answered at http://0\.0\.0\.0:(\d+), too", box.said)[1]
        url = f"http://127.0.0.1:{second}"
        asked = requests.post(f"{url}/v1/models/mnist:predict", json={"instances": [[1]]}, timeout=120)
        assert asked.json() == {"instances": [[1]]}, "port 8080 of KServe's, whatever the file says"
        assert requests.get(f"{url}/models/mnist", timeout=120).status_code == 404, "no management there"
        assert box.said.count("predictions are answered at") == 2, "gRPC has a second address, too"
    finally:
        container.send_signal(signal.SIGTERM)
        assert container.wait(30) == 0, box.said


def test_another_command_runs_as_it_is(box: Box) -> None:
    assert box.run("torchserve", "--version").wait(20) == 0
    assert box.said == "TorchServe Version is 0.12.0\n"


def test_the_image_has_torchserves_layout() -> None:
    for line in (
        "EXPOSE 8080 8081 8082 7070 7071",
        "USER model-server",
        f"WORKDIR {HOME}",
        'ENTRYPOINT ["/usr/local/bin/dockerd-entrypoint.sh"]',
        'CMD ["serve"]',
    ):
        assert re.search(f"^{re.escape(line)}$", DOCKERFILE, re.MULTILINE), line
    sagemaker = DOCKERFILE.partition("AS sagemaker\n")[2].partition("\nFROM ")[0]
    assert "\nUSER root\n" in sagemaker
    assert all(f"capabilities.{one}=true" in sagemaker for one in ("accept-bind-to-port", "multi-models"))
    assert f"{HOME}/model-store" in DOCKERFILE and f"{HOME}/wf-store" in DOCKERFILE
    assert re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE)[-2:] == ["gpu", "cpu"], (
        "the last one is the default"
    )


def test_the_image_is_built_with_the_projects_compiler() -> None:
    pinned = re.search(r'channel = "(.*)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    assert f"ARG RUST_VERSION={pinned}\n" in DOCKERFILE


def test_everything_the_image_copies_is_let_through() -> None:
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = re.findall(r"^COPY (?:--chown=\S+ )?([\w./-]+) /", DOCKERFILE, re.MULTILINE)
    assert copied and all((ROOT / path).exists() and path.split("/")[0] in allowed for path in copied)
    assert all((ROOT / path).exists() for path in allowed)


def test_every_crate_of_the_workspace_is_let_through() -> None:
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    [members] = re.findall(r"^members = \[(.*)\]$", (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    for member in re.findall(r'"([^"]+)"', members):
        assert member in allowed or member.split("/")[0] in allowed, f"cargo needs {member} in the image's build"
