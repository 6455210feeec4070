"""deploy/helm/jitney: its templates, rendered by Go's own library, are the manifests of deploy/kubernetes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.package import ROOT

yaml = pytest.importorskip("yaml", reason="NO PYYAML HERE: see `make test-deploy`")
GO, HELM = shutil.which("go"), shutil.which("helm")
pytestmark = pytest.mark.heavy
CHART = ROOT / "deploy" / "helm" / "jitney"
MANIFESTS = ROOT / "deploy" / "kubernetes"
BUILD_SECONDS = 300


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that renders."""
    if GO is None:
        pytest.skip("NO GO HERE: `make setup WITH=go` installs it")
    home = tmp_path_factory.mktemp("render")
    shutil.copy(Path(__file__).parent / "data" / "render.go", home / "main.go")
    (home / "go.mod").write_text("module render\n\ngo 1.19\n")
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "GOFLAGS": "-mod=mod", "GOPROXY": "off", "CGO_ENABLED": "0"}
    subprocess.run([GO, "build", "-o", "render", "."], cwd=home, env=env, check=True, timeout=BUILD_SECONDS)
    return home / "render"


def rendered(renderer: Path, release: str = "jitney", **values: Any) -> dict[str, list[Any]]:
    """The documents of each template, with these values over the chart's own."""
    own = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) <= set(own)
    data = {
        "Values": {**own, **values},
        "Release": {"Name": release, "Namespace": "default"},
        "Chart": yaml.safe_load((CHART / "Chart.yaml").read_text()),
    }
    templates = {path.name: path.read_text() for path in (CHART / "templates").glob("*.yaml")}
    given = json.dumps({"data": data, "templates": templates})
    done = subprocess.run([renderer], input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: documents(text) for name, text in json.loads(done.stdout).items()}


def documents(text: str) -> list[Any]:
    """The documents of a text; a file inside of one is read, too."""
    found = [one for one in yaml.safe_load_all(text) if one is not None]
    for one in found:
        if one["kind"] == "ConfigMap":
            one["data"] = {name: yaml.safe_load(inside) for name, inside in one["data"].items()}
    return found


def manifest(name: str) -> list[Any]:
    """The documents of a manifest."""
    return documents((MANIFESTS / name).read_text())


def test_the_chart_is_the_manifest(renderer: Path) -> None:
    found = rendered(renderer)
    assert found["jitney.yaml"] == manifest("jitney.yaml")
    assert found["autoscaler.yaml"] == found["monitoring.yaml"] == []


@pytest.mark.parametrize("kind", ["hpa", "keda"])
def test_an_autoscaler_is_the_manifests(renderer: Path, kind: str) -> None:
    found = rendered(renderer, autoscaler=kind)
    assert found["autoscaler.yaml"] == manifest(f"{kind}.yaml")
    (deployment,) = [one for one in found["jitney.yaml"] if one["kind"] == "Deployment"]
    assert "replicas" not in deployment["spec"]


def test_the_pod_monitor_is_the_manifests(renderer: Path) -> None:
    assert rendered(renderer, podMonitor=True)["monitoring.yaml"] == manifest("monitoring.yaml")


def test_values_reach_the_documents_that_they_are_about(renderer: Path) -> None:
    gpu = {"requests": {"cpu": "4"}, "limits": {"memory": "16Gi", "nvidia.com/gpu": 1}}
    more = {
        "env": [{"name": "A", "value": 'a "b": c'}],
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu"}],
    }
    found = rendered(renderer, "mine", models=["s3://b/m.mar", "x=y"], resources=gpu, image="r/i@sha256:1", **more)
    (deployment,) = [one for one in found["jitney.yaml"] if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][:4] == ["jitney", "serve", "s3://b/m.mar", "x=y"]
    assert (container["resources"], container["env"], container["image"]) == (gpu, more["env"], "r/i@sha256:1")
    assert (pod["nodeSelector"], pod["tolerations"]) == (more["nodeSelector"], more["tolerations"])
    names = {one["metadata"]["name"] for one in found["jitney.yaml"]}
    assert names == {"mine", "mine-metrics"}


def test_an_unknown_autoscaler_is_an_error(renderer: Path) -> None:
    with pytest.raises(AssertionError, match="autoscaler must be hpa, keda or empty, not knative"):
        rendered(renderer, autoscaler="knative")


@pytest.mark.skipif(HELM is None, reason="NO HELM HERE: the chart is rendered by Go's library alone")
def test_helm_finds_nothing_wrong() -> None:
    done = subprocess.run([HELM, "lint", "--strict", str(CHART)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
