"""Which platform a container is on, and the contracts of Vertex AI, MLServer, KServe and Hugging Face, with the real
binary."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from harness.archives import Store
from harness.clouds import Cloud, one_cloud
from harness.command import run
from harness.server import ASK_SECONDS, END_SECONDS, PORTS, Server
from harness.wait import until

PREDICT = "/v1/endpoints/17/deployedModels/4:predict"
HEALTH = "/v1/endpoints/17/deployedModels/4"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """Buckets and metadata servers."""
    with one_cloud() as cloud:
        yield cloud


def mar(tmp_path: Path) -> bytes:
    """An archive that answers what it gets."""
    return Store(tmp_path / "made").mar("echo").read_bytes()


# -- which platform -----------------------------------------------------------------------------


def test_platforms_are_known_by_their_variables(binary: Path) -> None:
    for variables, expected in [
        ({"AIP_PREDICT_ROUTE": "/p"}, "vertex\n"),
        ({"AIP_HTTP_PORT": "8080", "PORT": "8080"}, "vertex\n"),
        ({"AZUREML_ENTRY_SCRIPT": "score.py"}, "azure-ml\n"),
        ({"AZUREML_MODEL_DIR": "/m"}, "azure-ml\n"),
        ({"MLSERVER_HTTP_PORT": "8080"}, "mlserver\n"),
        ({"HF_TASK": "fill-mask", "PORT": "80"}, "hugging-face\n"),
        ({"HF_TASK": "fill-mask", "AIP_MODE": "PREDICTION"}, "vertex\n"),
        ({"HF_MODEL_ID": "org/model", "SAGEMAKER_PROGRAM": "x"}, "sagemaker\n"),
        ({"HF_TASK": "fill-mask", "SAGEMAKER_PROGRAM": "x"}, "sagemaker\n"),
        ({"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/x"}, "ecs\n"),
    ]:
        assert run(binary, "platform", **variables).stdout == expected
    both = run(binary, "platform", AIP_HTTP_PORT="1", AZUREML_MODEL_DIR="/m")
    assert both.returncode == 64
    assert "two platforms: vertex by AIP_HTTP_PORT, azure-ml by AZUREML_MODEL_DIR" in both.stderr


def test_the_platform_can_be_asked_for(binary: Path) -> None:
    for variables, expected in [
        ({"SAGEMAKER_PROGRAM": "x"}, "sagemaker\n"),
        ({"SAGEMAKER_PROGRAM": "x", "JITNEY_PLATFORM": "none"}, "none\n"),
        ({"PORT": "8080", "K_SERVICE": "x"}, "cloud-run\n"),
        ({"PORT": "8080"}, "port\n"),
    ]:
        assert run(binary, "platform", **variables).stdout == expected


def test_port_and_the_drain_of_cloud_run(binary: Path) -> None:
    def effective(*flags: str, **env: str) -> dict[str, tuple[str, str]]:
        rows = json.loads(run(binary, "config", "--json", "serve", *flags, **env).stdout)
        return {row["key"]: (row["value"], row["from"]) for row in rows}

    values = effective(PORT="9999", K_SERVICE="x")
    assert values["port"] == ("9999", "PORT")
    assert (values["host"][0], values["management_host"][0], values["drain_timeout"][0]) == (
        "0.0.0.0",
        "127.0.0.1",
        "8",
    )
    assert effective("--port", "1234", PORT="9999")["port"][0] == "1234", "a flag wins"
    task = effective(ECS_CONTAINER_METADATA_URI_V4="http://169.254.170.2/v4/x", PORT="9999")
    assert (task["port"], task["drain_timeout"][0]) == (("9999", "PORT"), "25")
    assert effective(PORT="9999", JITNEY_PORT="4321")["port"][0] == "4321", "so does our own variable"
    assert effective(PORT="tcp://10.0.0.1:80")["port"][0] == "8080"
    assert effective("--platform", "none", PORT="9999")["port"][0] == "8080"


def test_a_route_without_a_slash_is_said(binary: Path) -> None:
    done = run(binary, "serve", AIP_PREDICT_ROUTE="predict")
    assert done.returncode == 64
    assert "AIP_PREDICT_ROUTE must be a path that begins with a slash" in done.stderr


# -- Vertex AI ----------------------------------------------------------------------------------


def test_vertex_asks_under_its_own_routes(start: Callable[..., Server], cloud: Cloud, tmp_path: Path) -> None:
    cloud.put("models/run 7/artifacts", {"echo.mar": mar(tmp_path), "notes/readme.txt": b"none of the model"})
    env = {
        "AIP_MODE": "PREDICTION",
        "AIP_PREDICT_ROUTE": PREDICT,
        "AIP_HEALTH_ROUTE": HEALTH,
        "AIP_STORAGE_URI": "gs://models/run 7/artifacts",
        "GOOGLE_BASE_URL": cloud.base,
        **cloud.proxied,
    }
    server = start("serve", "--host", "127.0.0.1", env=env)
    assert requests.get(server.url(HEALTH), timeout=120).status_code == 200
    instances = requests.post(server.url(PREDICT), json={"instances": ["a", {"b": 1}], "parameters": {}}, timeout=120)
    assert (instances.status_code, instances.json()) == (200, {"predictions": ["a", {"b": 1}]})
    raw = requests.post(server.url(PREDICT), data=b"\x00raw", timeout=120)
    assert (raw.status_code, raw.content) == (200, b"\x00raw")
    assert requests.put(server.url(PREDICT), data=b"x", timeout=120).status_code == 405
    assert requests.post(server.url("/predictions/model"), data=b"x", timeout=120).content == b"x", "others stay"
    large = b"x" * 10_000_000
    assert requests.post(server.url(PREDICT), data=large, timeout=120).content == large, "as much as Vertex AI sends"
    server.logged("platform vertex by AIP_MODE")
    assert cloud.told, "the token came from the machine's metadata"


def test_vertexs_health_is_503_until_the_model_is_loaded(start: Callable[..., Server], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "app.py").write_text(
        "import os, time, jitney\n"
        "@jitney.model\n"
        "class Slow:\n"
        "    def setup(self):\n"
        f"        while not os.path.exists({str(gate)!r}):\n"
        "            time.sleep(0.02)\n"
        "    @jitney.endpoint\n"
        "    def predict(self, x: int) -> int:\n"
        "        return x + 1\n"
    )
    env = {"AIP_PREDICT_ROUTE": "/p", "AIP_HEALTH_ROUTE": "/h"}
    arguments = ("serve", "--host", "127.0.0.1", f"{tmp_path}/app.py:Slow")
    server = start(*arguments, env=env, wait_for_workers=False)
    assert requests.get(server.url("/h"), timeout=120).status_code == 503
    gate.touch()
    until(lambda: requests.get(server.url("/h"), timeout=120).status_code == 200, "the model is loaded")
    reply = requests.post(server.url("/p"), json={"instances": [1, 2]}, timeout=120)
    assert reply.json() == {"predictions": [2, 3]}


def test_vertexs_port_is_open_while_the_folder_is_fetched(binary: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bucket, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        address = f"http://127.0.0.1:{bucket.getsockname()[1]}"
        env = {"PATH": os.environ["PATH"], "AIP_HTTP_PORT": str(port), "AIP_STORAGE_URI": "gs://models/run"}
        env |= {"GOOGLE_BASE_URL": address, "HTTP_PROXY": address, "http_proxy": address}
        others = [word for flag in PORTS[1:] for word in (flag, "0")]
        command = [binary, "serve", "--host", "127.0.0.1", *others]
        with (tmp_path / "log").open("w+") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as server:
            try:
                bucket.settimeout(ASK_SECONDS)
                # Whoever asks here gets no answer.
                asked, _ = bucket.accept()
                with asked, socket.create_connection(("127.0.0.1", port), ASK_SECONDS):
                    server.terminate()
                    assert server.wait(END_SECONDS) == 0, (tmp_path / "log").read_text()
            finally:
                server.kill()


HANDLER = """
class EndpointHandler:
    def __init__(self, path):
        self.path = path
    def __call__(self, data):
        return data["inputs"] + 1
"""


def test_hugging_faces_model_has_vertexs_routes(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(HANDLER)
    routes = {"AIP_MODE": "PREDICTION", "AIP_PREDICT_ROUTE": "/p", "AIP_HEALTH_ROUTE": "/h"}
    server = start("serve", "--host", "127.0.0.1", env={**routes, "HF_MODEL_DIR": str(tmp_path)})
    assert requests.get(server.url("/h"), timeout=120).status_code == 200
    reply = requests.post(server.url("/p"), json={"instances": [1, 2]}, timeout=120)
    assert reply.json() == {"predictions": [2, 3]}
    server.logged("platform vertex by AIP_MODE with HF_MODEL_DIR")


# -- MLServer and KServe ------------------------------------------------------------------------


def test_mlservers_variables_and_file_say_what_is_served(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "echo.mar").write_bytes(mar(tmp_path))
    settings = {
        "name": "of-the-file",
        "implementation": "mlserver_mlflow.MLflowRuntime",
        "parameters": {"uri": "./echo.mar", "version": "2.0"},
        "max_batch_size": 4,
        "max_batch_time": 0.5,
    }
    (tmp_path / "models" / "model-settings.json").write_text(json.dumps(settings))
    env = {"MLSERVER_MODELS_DIR": str(tmp_path / "models"), "MLSERVER_HOST": "127.0.0.1", "MLSERVER_MODEL_NAME": "iris"}
    server = start("serve", env=env)
    assert server.predict("iris", b"hi").text == "hi"
    described = server.describe("iris")
    kept = (described["modelVersion"], described["batchSize"], described["maxBatchDelay"])
    assert kept == ("2.0", 4, 500)


def test_what_mlservers_variables_cannot_mean_is_said(binary: Path, tmp_path: Path) -> None:
    models = {"MLSERVER_MODELS_DIR": str(tmp_path)}
    foreign = run(binary, "serve", MLSERVER_MODEL_IMPLEMENTATION="models.MyModel", **models)
    assert foreign.returncode == 64 and "models.MyModel is a class for MLServer" in foreign.stderr
    time = run(binary, "serve", MLSERVER_MODEL_MAX_BATCH_TIME="soon", **models)
    assert time.returncode == 64 and "MLSERVER_MODEL_MAX_BATCH_TIME must be seconds" in time.stderr
    (tmp_path / "model-settings.json").write_text("{")
    broken = run(binary, "serve", **models)
    assert broken.returncode == 64 and "model-settings.json" in broken.stderr


SNAPSHOT = {"minWorkers": 1, "maxWorkers": 2, "batchSize": 4, "maxBatchDelay": 10, "responseTimeout": 60}


def torchserve_folder(folder: Path, addresses: str, **named: str) -> Path:
    """TorchServe's layout as KServe mounts it: the archive `echo.mar` under these names."""
    (folder / "config").mkdir(parents=True)
    Store(folder / "model-store").mar("echo")
    models = {name: {"1.0": SNAPSHOT | {"defaultVersion": True, "marName": mar}} for name, mar in named.items()}
    snapshot = json.dumps({"name": "startup.cfg", "modelCount": len(models), "models": models})
    lines = f"{addresses}job_queue_size=10\nmodel_store=/mnt/models/model-store\nmodel_snapshot={snapshot}\n"
    (folder / "config" / "config.properties").write_text(lines)
    return folder


def test_torchserves_file_of_a_folder_is_read(start: Callable[..., Server], tmp_path: Path) -> None:
    folder = torchserve_folder(tmp_path / "models", "", mnist="echo.mar", other="echo.mar")
    server = start("serve", folder)
    assert [server.predict(name, b"hi").text for name in ("mnist", "other")] == ["hi", "hi"]
    described = server.describe("mnist")
    assert {key: described[key] for key in SNAPSHOT} == SNAPSHOT
    assert described["modelVersion"] == "1.0"
    assert server.predict("echo", b"hi").status_code == 404, "the names are the snapshot's"
    named = start("serve", f"shop={torchserve_folder(tmp_path / 'one', '', mnist='echo.mar')}")
    assert (named.predict("shop", b"hi").text, named.describe("shop")["batchSize"]) == ("hi", 4)


def test_the_ports_of_torchserves_file_are_kept(binary: Path, tmp_path: Path) -> None:
    addresses = "inference_address=http://0.0.0.0:8085\nmanagement_address=http://0.0.0.0:8085\n"
    addresses += "metrics_address=http://0.0.0.0:8092\ngrpc_inference_port=7075\n"
    folder = torchserve_folder(tmp_path / "models", addresses, mnist="echo.mar")

    def effective(*arguments: str, **env: str) -> tuple[dict[str, str], str]:
        done = run(binary, "config", "--json", "serve", str(folder), *arguments, **env)
        rows = {row["key"]: row["value"] for row in json.loads(done.stdout) if row["model"] is None}
        return rows, done.stderr

    values, said = effective()
    ports = [values[key] for key in ("host", "port", "metrics_port", "grpc_port", "queue")]
    assert ports == ["0.0.0.0", "8085", "8092", "7075", "10"]
    assert (values["management_host"], values["management_port"]) == ("127.0.0.1", "8081")
    assert "management has an address of its own here, 127.0.0.1" in said
    assert effective("--port", "8080")[0]["port"] == "8080", "a flag counts more"
    assert effective(JITNEY_PORT="8081")[0]["port"] == "8081"
    two = run(binary, "config", "serve", f"one={torchserve_folder(tmp_path / 'two', '', a='echo.mar', b='echo.mar')}")
    assert two.returncode == 64 and 'must hold one model to be served as "one"' in two.stderr
    gone = run(binary, "config", "serve", str(torchserve_folder(tmp_path / "gone", "", a="none.mar")))
    assert gone.returncode == 1 and "none.mar of model a is not in the model store" in gone.stderr
    secured = torchserve_folder(tmp_path / "secured", "inference_address=https://0.0.0.0:8443\n", a="echo.mar")
    refused = run(binary, "config", "serve", str(secured))
    assert refused.returncode == 64 and "cannot be kept by `jitney serve`" in refused.stderr


def test_a_model_in_another_container_of_the_pod(start: Callable[..., Server], tmp_path: Path) -> None:
    """KServe's modelcars: /mnt/models is a link to /proc/N/root/models, whose root is no folder of this container."""
    script = (
        f"mount -t tmpfs none {tmp_path}/car && mkdir {tmp_path}/car/models && "
        f"cp -r {tmp_path}/made/. {tmp_path}/car/models/ && echo there && exec {sys.executable} -c "
        f"\"import os, sys; os.chroot('{tmp_path}/car'); print('ready', flush=True); sys.stdin.read()\""
    )
    (tmp_path / "car").mkdir()
    torchserve_folder(tmp_path / "made/layout", "", mnist="echo.mar")
    (tmp_path / "made/plain").mkdir()
    (tmp_path / "made/plain/echo.mar").write_bytes(mar(tmp_path / "of"))
    command = ["unshare", "--mount", "sh", "-c", script]
    car = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if car.stdout.readline() != "there\n":
            pytest.skip(f"this machine lets nobody mount: {car.stderr.read().strip()}")
        assert car.stdout.readline() == "ready\n"
        (tmp_path / "models").symlink_to(f"/proc/{car.pid}/root/models")
        server = start("serve", f"pod={tmp_path}/models/plain")
        assert server.predict("pod", b"hi").text == "hi"
        server = start("serve", f"{tmp_path}/models/layout")
        assert server.predict("mnist", b"hi").text == "hi"
        assert server.describe("mnist")["batchSize"] == 4
    finally:
        car.communicate("")


# -- Hugging Face -------------------------------------------------------------------------------


def test_hugging_faces_variables_name_folder_and_task(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "echo.mar").write_bytes(mar(tmp_path))

    def effective(**env: str) -> dict[str, tuple[str, str]]:
        done = run(binary, "config", "--json", "serve", HF_MODEL_DIR=str(tmp_path / "models"), **env)
        return {row["key"]: (row["value"], row["from"]) for row in json.loads(done.stdout)}

    values = effective(HF_TASK="text-classification", HF_TRUST_REMOTE_CODE="1", PORT="80")
    assert values["task"] == ("text-classification", "HF_TASK")
    assert values["trust"] == ("true", "HF_TRUST_REMOTE_CODE")
    assert (values["port"][0], values["install_requirements"][0]) == ("5000", "true"), "PORT does not count"
    hub = run(binary, "serve", HF_MODEL_ID="org/model", HF_REVISION="v1", HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert hub.returncode and "hf:org/model@v1" in hub.stderr, hub.stderr


def test_hugging_faces_paths_lead_to_the_model(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "echo.mar").write_bytes(mar(tmp_path))
    server = start("serve", "--host", "127.0.0.1", env={"HF_MODEL_DIR": str(tmp_path / "models")})
    body = {"inputs": "a"}
    assert requests.post(server.url("/"), json=body, timeout=120).json() == body
    assert requests.post(server.url("/predict"), json=body, timeout=120).json() == body
    assert [requests.get(server.url(path), timeout=120).status_code for path in ("/", "/health")] == [200, 200]


def test_hugging_faces_handler_is_run_as_on_its_endpoints(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(HANDLER)
    server = start("serve", "--host", "127.0.0.1", env={"HF_MODEL_DIR": str(tmp_path)})
    for path in ("/", "/predict"):
        assert requests.post(server.url(path), json={"inputs": 1}, timeout=120).json() == 2
    wrong = requests.post(server.url("/"), json={"inputs": "a"}, timeout=120)
    assert (wrong.status_code, list(wrong.json())) == (400, ["error"])
