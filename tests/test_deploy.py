"""deploy/kubernetes and deploy/kserve: every manifest against its schema, and every container as it is described there.

The containers run the real binary as the manifests say: their command, their probes, their user, a read-only root,
/mnt/models, SIGTERM. Schemas come from packages of their own: `make test-deploy`.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import onnx
from harness.archives import Store
from harness.package import ROOT
from harness.pod import END_SECONDS, USER, Pod, possible
from harness.wait import until

pytestmark = pytest.mark.heavy

yaml = pytest.importorskip("yaml", reason="see `make test-deploy`")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="see `make test-deploy`")
kserve_models = pytest.importorskip("kserve.models", reason="see `make test-deploy`")
kubernetes_models = pytest.importorskip("kubernetes.client.models", reason="see `make test-deploy`")

DEPLOY = ROOT / "deploy"
OURS = {"serving.kserve.io/v1alpha1": "V1alpha1", "serving.kserve.io/v1beta1": "V1beta1"}
"""Groups that the package kserve knows, and how it calls their versions."""
THEIRS = ("keda.sh/v1alpha1", "monitoring.coreos.com/v1")
"""Groups of npm's packages."""
VALIDATE = """
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { readFileSync } from "node:fs";
const kinds = { ScaledObject, PodMonitor };
const document = JSON.parse(readFileSync(0, "utf8"));
new kinds[document.kind](document).validate();
"""

SUM = """
def handle(data, context):
    return data and [sum(row["body"]) for row in data]
"""
SHOUT = """
import jitney


@jitney.batch(max_batch_size=8)
def shout(text: list[str]) -> list[str]:
    return [one.upper() for one in text]
"""
GATED = """
import pathlib

import jitney


@jitney.batch(max_batch_size=8)
def shout(text: list[str]) -> list[str]:
    pathlib.Path("/home/model-server/tmp/running").touch()
    gate = pathlib.Path("/mnt/models/open")
    while not gate.exists():
        pass
    return [one.upper() for one in text]
"""


def documents() -> list[Any]:
    """Every document of every manifest, with a name for the test."""
    found = []
    for path in sorted(DEPLOY.glob("k*/*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            name = f"{path.name}-{document['kind']}-{document['metadata']['name']}"
            found.append(pytest.param(document, id=name))
    assert len(found) > 10
    return found


def unknown(value: Any, kind: str, where: str = "") -> list[str]:
    """The fields of a document that its type does not have."""
    inner = re.fullmatch(r"(?:list\[|dict\(str, )(.+)[\])]", kind)
    if inner and isinstance(value, list):
        return [it for number, one in enumerate(value) for it in unknown(one, inner[1], f"{where}[{number}]")]
    if inner and isinstance(value, dict):
        return [it for key, one in value.items() for it in unknown(one, inner[1], f"{where}.{key}")]
    model = getattr(kserve_models, kind, None) or getattr(kubernetes_models, kind, None)
    if model is None or not hasattr(model, "openapi_types"):
        return []
    if not isinstance(value, dict):
        return [f"{where} is not a {kind}"]
    types = {model.attribute_map[name]: type_ for name, type_ in model.openapi_types.items()}
    wrong = [f"{where}.{key}" for key in value if key not in types]
    return wrong + [
        it for key, one in value.items() if key in types for it in unknown(one, types[key], f"{where}.{key}")
    ]


@pytest.mark.parametrize("document", documents())
def test_a_manifest_fits_its_schema(document: dict[str, Any]) -> None:
    group = document["apiVersion"]
    if group in OURS:
        assert unknown(document, OURS[group] + document["kind"]) == []
    elif group in THEIRS:
        script, packages = ["node", "--input-type=module", "--eval", VALIDATE], os.environ["DEPLOY_NODE_PACKAGES"]
        done = subprocess.run(script, input=json.dumps(document), cwd=packages, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    else:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_schemas_find_mistakes() -> None:
    """The check itself can fail."""
    runtime = runtimes()["jitney-onnx"]
    broken = json.loads(json.dumps(runtime))
    broken["spec"]["containers"][0]["livenessprobe"] = broken["spec"]["containers"][0].pop("livenessProbe")
    broken["spec"]["supportedModelFormats"][0]["autoselect"] = True
    wrong = unknown(broken, "V1alpha1ClusterServingRuntime")
    assert set(wrong) == {".spec.containers[0].livenessprobe", ".spec.supportedModelFormats[0].autoselect"}


def test_autoscalers_ask_for_metrics_that_exist() -> None:
    known = set(re.findall(r"`(jitney_\w+)`", (ROOT / "docs/reference/metrics.md").read_text()))
    keda = (DEPLOY / "kubernetes/keda.yaml").read_text()
    hpa = (DEPLOY / "kubernetes/hpa.yaml").read_text()
    named = set(re.findall(r"\b(jitney_\w+)", keda + hpa))
    assert named and named <= known


def runtimes() -> dict[str, Any]:
    text = (DEPLOY / "kserve/runtimes.yaml").read_text()
    return {document["metadata"]["name"]: document for document in yaml.safe_load_all(text)}


def deployment() -> dict[str, Any]:
    every = yaml.safe_load_all((DEPLOY / "kubernetes/jitney.yaml").read_text())
    return next(document for document in every if document["kind"] == "Deployment")


def mounted(directory: Path, name: str, version: str, text: str) -> None:
    """What the kubelet does with a ConfigMap or a Secret: files are links through `..data`, which is swapped."""
    (directory / version).mkdir(parents=True)
    (directory / version / name).write_text(text)
    (directory / "..new").symlink_to(version)
    (directory / "..new").rename(directory / "..data")
    if not (directory / name).is_symlink():
        (directory / name).symlink_to(f"..data/{name}")


def test_replicas_follow_a_config_map(pod: Callable[..., Pod], tmp_path: Path) -> None:
    every = {it["kind"]: it for it in yaml.safe_load_all((DEPLOY / "kubernetes/replicas.yaml").read_text())}
    models, config = tmp_path / "models", tmp_path / "config"
    models.mkdir()
    (models / "shout.py").write_text(SHOUT)
    text, keys = every["ConfigMap"]["data"]["models.yaml"], every["Secret"]["stringData"]["keys.json"]
    mounted(config / "models", "models.yaml", "..1", text)
    mounted(config / "keys", "keys.json", "..1", keys)
    spec = every["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    running = pod(container, models, config=config)
    running.wait_for(container["startupProbe"], ports)
    check_walls(running, {8080, 7070, 8082})

    def ask(name: str) -> tuple[int, str]:
        key = f"Authorization: Bearer {json.loads(keys)['inference']['key']}"
        url = f"http://127.0.0.1:8080/v1/models/{name}:predict"
        return running.ask(url, "-H", key, "--json", '{"instances": ["hello"]}')

    status, body = ask("shout")
    assert (status, json.loads(body)) == (200, {"predictions": ["HELLO"]}), body + running.log
    mounted(config / "models", "models.yaml", "..2", text.replace("name: shout", "name: loud"))
    until(lambda: ask("loud")[0] == 200, "the new model answers")
    until(lambda: ask("shout")[0] == 404, "the old one is gone")
    running.terminate()
    assert running.process.wait(END_SECONDS) == 0, running.log


def adder(path: Path) -> Path:
    """`y = x + 1`, for rows of two numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    row = [onnx.value(name, onnx.FLOAT, ["n", 2]) for name in "xy"]
    weight = onnx.tensor(onnx.FLOAT, [1], struct.pack("<f", 1.0), "b")
    return onnx.write(path, [onnx.node("Add", ["x", "b"], "y")], row[:1], row[1:], [weight])


@pytest.fixture
def pod(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Pod]]:
    """Starts a container of a manifest on models below a directory that everybody may read."""
    if not possible():
        pytest.skip("needs root and namespaces")
    pods: list[Pod] = []

    def start(container: dict[str, Any], models: Path, *more: str, config: Path | None = None) -> Pod:
        words = [*container["command"], *container.get("args", []), *more]
        command = [word.replace("{{.Name}}", "shop").replace("/etc/jitney", "/opt/etc") for word in words]
        for path in [models, *models.parents][:-1]:
            if path.owner() == "root" and path.is_relative_to(tmp_path_factory.getbasetemp().parent):
                path.chmod(0o755)
        home = tmp_path_factory.mktemp("pod") / "home"
        pods.append(Pod(binary, home, models, command, config))
        return pods[-1]

    yield start
    for one in pods:
        one.end()


def check_walls(pod: Pod, open_ports: set[int]) -> None:
    """What every container of ours promises."""
    assert set(pod.status("Uid").split()) == {str(USER)}
    assert int(pod.status("CapEff"), 16) == int(pod.status("CapBnd"), 16) == 0
    assert pod.status("NoNewPrivs") == "1"
    listening = pod.listening()
    assert {port for port, addresses in listening.items() if addresses & {"0.0.0.0", "*", "[::]"}} == open_ports
    assert listening[8081] == {"127.0.0.1"}


def test_a_deployment_serves_and_drains(pod: Callable[..., Pod], tmp_path: Path) -> None:
    models = tmp_path / "models"
    adder(models / "add.onnx")
    Store(models / "archives").mar("sum", source=SUM).rename(models / "sum.mar")
    (models / "archives").rmdir()
    every = yaml.safe_load_all((DEPLOY / "kubernetes/jitney.yaml").read_text())
    settings = next(document for document in every if document["kind"] == "ConfigMap")["data"]
    config = tmp_path / "config"
    config.mkdir()
    for name, text in settings.items():
        (config / name).write_text(text)
    spec = deployment()["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    running = pod(container, models, config=config)
    running.wait_for(container["startupProbe"], ports)
    assert running.probe(container["readinessProbe"], ports) and running.probe(container["livenessProbe"], ports)
    check_walls(running, {8080, 7070, 8082})
    status, body = running.ask("http://127.0.0.1:8080/v1/models/add:predict", "--json", '{"instances": [[1, 2]]}')
    assert (status, json.loads(body)) == (200, {"predictions": [[2.0, 3.0]]}), body
    assert "jitney_requests_total" in running.ask("http://127.0.0.1:8082/metrics")[1]
    grace = spec["terminationGracePeriodSeconds"]
    times = [
        int(re.search(rf"{name}: (\d+)s", settings["jitney.yaml"])[1]) for name in ("drain_delay", "drain_timeout")
    ]
    assert sum(times) < grace
    running.terminate()
    # Between SIGTERM and the end of drain_delay it still answers, and says that it is not ready.
    until(lambda: not running.probe(container["readinessProbe"], ports), "it is not ready any more")
    assert running.process.wait(END_SECONDS) == 0, running.log
    assert all(json.loads(line) for line in running.log.splitlines() if line.startswith("{"))


LAYOUTS: list[tuple[str, str, Callable[[Path], object], str]] = [
    ("jitney-onnx", "model.onnx", lambda models: adder(models / "model.onnx"), "shop"),
    ("jitney-onnx", "versions", lambda models: adder(models / "3/model.onnx"), "shop"),
    ("jitney-onnx", "triton", lambda models: adder(models / "add/1/model.onnx"), "shop"),
    ("jitney-pytorch", "torchserve", lambda models: torchserve(models), "sum"),
    (
        "jitney-pytorch",
        "archive",
        lambda models: Store(models / "of").mar("sum", source=SUM).rename(models / "sum.mar"),
        "sum",
    ),
]


def torchserve(models: Path) -> None:
    """TorchServe's layout under KServe."""
    (models / "config").mkdir()
    (models / "config/config.properties").write_text("inference_address=http://0.0.0.0:8085\n")
    Store(models / "model-store").mar("sum", source=SUM)


@pytest.mark.parametrize(
    ("runtime", "layout", "fill", "name"), LAYOUTS, ids=[f"{one}-{two}" for one, two, *_ in LAYOUTS]
)
def test_a_runtime_serves_what_kserve_mounts(
    pod: Callable[..., Pod], tmp_path: Path, runtime: str, layout: str, fill: Callable[[Path], object], name: str
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    fill(models)
    (container,) = runtimes()[runtime]["spec"]["containers"]
    running = pod(container, models)
    running.wait_for(container["startupProbe"], {})
    check_walls(running, {8080, 9000, 8082})
    status, body = running.ask(f"http://127.0.0.1:8080/v1/models/{name}:predict", "--json", '{"instances": [[1, 2]]}')
    wanted = [[2.0, 3.0]] if runtime == "jitney-onnx" else [3]
    assert (status, json.loads(body or "{}")) == (200, {"predictions": wanted}), body + running.log
    assert running.ask(f"http://127.0.0.1:8080/v2/models/{name}/ready")[0] == 200
    running.terminate()
    assert running.process.wait(END_SECONDS) == 0, running.log


GRPC = """
import asyncio, kserve
from kserve import InferenceGRPCClient, InferInput, InferRequest


async def main():
    client = InferenceGRPCClient("127.0.0.1:9000")
    one = InferInput("x", [1, 2], "FP32", [1.0, 2.0])
    answer = await client.infer(InferRequest("shop", [one]))
    print(answer.outputs[0].data)
    await client.close()

asyncio.run(main())
"""


def test_a_runtime_speaks_version_2_over_both(pod: Callable[..., Pod], tmp_path: Path) -> None:
    models = tmp_path / "models"
    adder(models / "model.onnx")
    (container,) = runtimes()["jitney-onnx"]["spec"]["containers"]
    running = pod(container, models)
    running.wait_for(container["startupProbe"], {})
    inputs = [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]
    status, body = running.ask("http://127.0.0.1:8080/v2/models/shop/infer", "--json", json.dumps({"inputs": inputs}))
    assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [2.0, 3.0])
    done = running.inside(sys.executable, "-c", GRPC)
    assert done.stdout.strip().startswith("[2.0, 3.0]"), done.stderr


def test_a_definition_is_drained_with_its_request(pod: Callable[..., Pod], tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "model.py").write_text(GATED)
    (container,) = runtimes()["jitney-python"]["spec"]["containers"]
    running = pod(container, models)
    running.wait_for(container["startupProbe"], {})
    answers: list[tuple[int, str]] = []
    ask = threading.Thread(
        target=lambda: answers.append(
            running.ask("http://127.0.0.1:8080/v1/models/shop:predict", "--json", '{"instances": ["hello"]}')
        )
    )
    ask.start()
    root = Path(f"/proc/{running.process.pid}/root")
    until((root / "home/model-server/tmp/running").exists, "the request runs")
    running.terminate()
    until(lambda: not running.probe(container["readinessProbe"], {}), "it is not ready any more")
    assert running.process.poll() is None
    (models / "open").touch()
    ask.join()
    assert answers[0][0] == 200 and json.loads(answers[0][1]) == {"predictions": ["HELLO"]}, answers
    assert running.process.wait(END_SECONDS) == 0, running.log
