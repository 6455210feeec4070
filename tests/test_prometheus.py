"""A real Prometheus scrapes the server, with native histograms and without; its rules are tried; the dashboard is read
by Grafana's own types. Runs in `make test-prometheus`, with Debian's Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.package import ROOT
from harness.server import Server
from harness.wait import until

pytestmark = pytest.mark.heavy

RULES = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "jitney.json"
NEWER = {"builtIn", "definition", "titleFormat", "step"}
"""Fields of annotations and variables that Grafana writes itself and its types do not name."""


@pytest.fixture(scope="module")
def prometheus() -> str:
    """The program."""
    path = os.environ.get("JITNEY_TEST_PROMETHEUS") or shutil.which("prometheus")
    if not path:
        pytest.skip("no prometheus: see `make test-prometheus`")
    return path


@pytest.fixture(scope="module")
def promtool(prometheus: str) -> Callable[..., str]:
    """Runs its tool for rules."""
    tool = str(Path(prometheus).with_name("promtool"))

    def run(*arguments: str | Path) -> str:
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def free_port() -> int:
    """A port that nobody uses now; Prometheus does not tell which one it was given."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(params=[True, False], ids=["native", "classic"])
def scraping(request: pytest.FixtureRequest, prometheus: str, shared: Server, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes the server every second, with our rules."""
    target = shared.urls["metrics"].removeprefix("http://")
    config = f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{RULES / "alerts.yml"}]
scrape_configs: [{{job_name: jitney, static_configs: [{{targets: ["{target}"]}}]}}]
"""
    (tmp_path / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    command = [prometheus, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    command += [f"--web.listen-address={address}"] + ["--enable-feature=native-histograms"] * request.param
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until(lambda: is_ready(f"http://{address}"), "Prometheus is ready")
            yield f"http://{address}"
        finally:
            process.terminate()


def is_ready(address: str) -> bool:
    """Whether it answers queries."""
    try:
        return requests.get(f"{address}/-/ready", timeout=30).ok
    except requests.ConnectionError:
        return False


def query(address: str, expr: str) -> list[float]:
    """The values of an expression now."""
    reply = requests.get(f"{address}/api/v1/query", {"query": expr}, timeout=30).json()
    assert reply["status"] == "success", reply
    return [float(one["value"][1]) for one in reply["data"]["result"] if one.get("value", [0, "NaN"])[1] != "NaN"]


def test_the_quantiles_of_a_real_prometheus_are_those_of_the_requests(
    scraping: str, shared: Server, request: pytest.FixtureRequest
) -> None:
    native = "native" in request.node.name
    series = "jitney_latency_seconds" if native else "jitney_latency_seconds_bucket"
    expr = f"histogram_quantile(0.99, rate({series}[1m]))"

    def found() -> bool:
        assert shared.predict("echo", b"x").status_code == 200
        return bool(query(scraping, expr)) and bool(query(scraping, "jitney:latency_seconds:p99"))

    until(found, "a quantile of the latency")
    [value] = query(scraping, expr)
    assert 1e-5 < value < 60
    assert query(scraping, 'up{job="jitney"}') == [1]
    assert query(scraping, "jitney_model_ready") == [1]
    assert bool(query(scraping, "jitney_latency_seconds_bucket")) is not native
    assert query(scraping, 'jitney_batch_items_bucket{le="1.0"}'), "classic histograms stay"

    def evaluated() -> bool:
        groups = requests.get(f"{scraping}/api/v1/rules", timeout=30).json()["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert all(not rule.get("lastError") for rule in rules), rules
        return all(rule["health"] == "ok" for rule in rules)

    until(evaluated, "every rule is evaluated")
    assert query(scraping, 'ALERTS{alertstate="firing"}') == []


def firing(address: str) -> set[tuple[str, str]]:
    """Alerts that fire, each with its model."""
    found = requests.get(f"{address}/api/v1/alerts", timeout=30).json()["data"]["alerts"]
    return {
        (one["labels"]["alertname"], one["labels"].get("model_name", "")) for one in found if one["state"] == "firing"
    }


def test_a_bad_deployment_and_a_crash_loop_fire_alerts(scraping: str, shared: Server) -> None:
    shared.store.mar("broken", source="raise RuntimeError('no such weights')")
    shared.manage("POST", "/models", url="broken.mar", initial_workers=1, synchronous="false")
    until(lambda: ("LoadFailed", "broken") in firing(scraping), "the alert of the failed load")
    crashing = shared.need("crashing", "orders")

    def crash() -> bool:
        # Each is another request: the same one is soon rejected.
        shared.predict(crashing, {"say": ["stdout", os.urandom(8).hex()], "os_exit": 1})
        return ("WorkerCrashLoop", crashing) in firing(scraping)

    until(crash, "the alert of the crash loop")
    for model in ("broken", crashing):
        shared.manage("DELETE", f"/models/{model}")


def test_the_rules_are_valid_and_each_alert_fires_when_it_should(promtool: Callable[..., str]) -> None:
    assert "SUCCESS" in promtool("check", "config", RULES / "prometheus.yml")
    assert "SUCCESS" in promtool("test", "rules", RULES / "alerts_test.yml")


def test_the_dashboard_has_the_types_of_grafana() -> None:
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins", reason="see `make test-prometheus`")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()
    raw = json.loads(DASHBOARD.read_text())
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(raw)))
    assert [path for path in lost(raw, again) if path.rpartition(".")[2] not in NEWER] == []
    ids = [panel["id"] for panel in raw["panels"]]
    assert len(ids) == len(set(ids))


def lost(raw: Any, again: Any, path: str = "") -> Iterator[str]:
    """What is in a document and not in what its types kept of it."""
    if isinstance(raw, dict):
        for name, value in raw.items():
            if isinstance(again, dict) and name in again:
                yield from lost(value, again[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(raw, list) and isinstance(again, list) and len(raw) == len(again):
        for at, (one, other) in enumerate(zip(raw, again, strict=True)):
            yield from lost(one, other, f"{path}[{at}]")
    elif raw != again:
        yield path
