"""What operators watch a server with: the rules and the dashboard of deploy/ name metrics that there really are.

One server with a definition in Python and an ONNX file is asked; nothing here needs Prometheus or Grafana
(`make test-prometheus` does).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import requests
import yaml

from harness import onnx
from harness.package import ROOT
from harness.server import Server

APP = """
import jitney


class Shop:
    @jitney.batch(max_batch_size=8)
    def price(self, count: list[int]) -> list[int]:
        return [2 * many for many in count]

    @jitney.endpoint
    def greet(self, name: str) -> str:
        return name
"""

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "jitney.json"
RUNBOOK = ROOT / "docs" / "operations" / "alerts.md"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
OF_SCRAPES = {"instance", "job"}
"""Labels that Prometheus adds."""
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum", "")}
"""Series of a metric; a native histogram has none."""
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
ASKED = "endpoint-load-metrics-format"


@pytest.fixture(scope="module")
def served(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with both kinds of models."""
    home = tmp_path_factory.mktemp("monitoring")
    (home / "app.py").write_text(APP)
    onnx.filler(home / "filler.onnx")
    server = Server(binary, home / "server", ["serve", "app:Shop", "filler.onnx"], cwd=home)
    yield server.started()
    server.end()


@pytest.fixture(scope="module")
def page(served: Server) -> str:
    """The metrics after a request to each of the definition's endpoints."""
    for endpoint, body in (("price", {"count": 2}), ("greet", {"name": "a"})):
        reply = requests.post(served.url(f"/Shop/{endpoint}"), json=body, timeout=60)
        assert reply.status_code == 200, reply.text
    return requests.get(served.url("/metrics", "metrics"), timeout=60).text


@cache
def rules() -> list[dict[str, Any]]:
    """All rules, of alerts and recordings."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """The alerts among them."""
    return [rule for rule in rules() if "alert" in rule]


def panels() -> Iterator[tuple[str, str, str]]:
    """Title, expression and legend of every query of the dashboard."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            inside = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert inside, variable
            yield variable["name"], f"count by ({inside[2]}) ({inside[1]})", ""


def expressions() -> list[tuple[str, str, str]]:
    """Where each expression stands, the expression, and what is written with its labels."""
    of_rules = [(rule.get("alert") or rule["record"], rule["expr"], str(rule.get("annotations"))) for rule in rules()]
    concrete = [(title, expr.replace("$__rate_interval", "5m"), legend) for title, expr, legend in panels()]
    return [*of_rules, *concrete]


def selectors(node: Any) -> Iterator[Any]:
    """All selectors of series in a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for part in ("lhs", "rhs", "expr", "vector_selector"):
        if hasattr(node, part):
            yield from selectors(getattr(node, part))
    for argument in getattr(node, "args", []):
        yield from selectors(argument)


def labels_of(expr: str) -> set[str]:
    """Labels that an expression groups or joins by."""
    lists = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expr)
    return {label.strip() for one in lists for label in one.split(",") if label.strip()}


def known(page: str) -> dict[str, set[str]]:
    """Labels of every series that there is or may be: of the page, and of the table that a test compares with it."""
    rows = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \| ([\w, ]*) \|", REFERENCE.read_text(), re.M)
    documented = {name: {one for one in labels.split(", ") if one.strip()} for name, _, labels in rows}
    series = {"up": set()}
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", page, re.M):
        shown = re.findall(rf"^{name}(?:_count)?\{{(.*)\}} ", page, re.M)
        labels = {label for line in shown for label in re.findall(r'(\w+)="', line)} - {"le"}
        labels |= documented[name]
        for suffix in SUFFIXES.get(kind, ("",)):
            series[name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    for rule in rules():
        if "record" in rule:
            series[rule["record"]] = {"model_name", "model_version", "hostname"}
    return series


def test_every_expression_names_metrics_and_labels_that_there_are(page: str) -> None:
    series = known(page)
    wrong = []
    for where, expr, text in expressions():
        found = list(selectors(promql_parser.parse(expr)))
        assert found, (where, expr)
        names = {selector.name for selector in found}
        wrong += [f"{where}: there is no {name}" for name in names - series.keys()]
        labels = OF_SCRAPES.union(*(series.get(name, set()) for name in names))
        used = {matcher.name for selector in found for matcher in selector.matchers.matchers} | labels_of(expr)
        used |= set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))
        wrong += [f"{where}: {names} have no label {label}" for label in used - labels - {"__name__"}]
    assert not wrong, "\n".join(wrong)


def test_every_alert_says_what_it_means_and_has_a_section_and_a_test() -> None:
    sections = set(re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.M))
    assert sections == {alert["alert"] for alert in alerts()}
    for alert in alerts():
        assert alert["labels"]["severity"] in ("critical", "warning", "info"), alert
        assert {"summary", "description", "runbook"} == alert["annotations"].keys(), alert
        path, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert (ROOT / path, anchor) == (RUNBOOK, alert["alert"].lower()), alert
    tested = {case["name"] for case in yaml.safe_load((ALERTS.parent / "alerts_test.yml").read_text())["tests"]}
    assert tested == sections


def test_the_runbook_names_panels_that_the_dashboard_has() -> None:
    titles = {panel["title"] for panel in json.loads(DASHBOARD.read_text())["panels"]}
    lines = [line for line in RUNBOOK.read_text().splitlines() if "panel" in line and line.startswith("- **See:**")]
    named = {name for line in lines for name in re.findall(r"\*([A-Z][\w ]+)\*", line)}
    assert named and named <= titles, named - titles


def test_endpoints_and_processes_are_measured(served: Server, page: str) -> None:
    shop = 'model_name="Shop",model_version="1.0",'
    for endpoint in ("price", "greet"):
        assert re.search(rf'^jitney_endpoint_answered_total{{{shop}endpoint="{endpoint}",.*}} 1\.0$', page, re.M), page
    memory = re.findall(r"^jitney_worker_memory_bytes\{.*\} (\S+)$", page, re.M)
    assert len(memory) == 2 and all(float(one) > 1_000_000 for one in memory), memory
    own = re.search(r"^process_resident_memory_bytes (\S+)$", page, re.M)
    assert own and float(own[1]) > 1_000_000
    assert re.search(rf"^jitney_model_ready{{{shop}.*}} 1\.0$", page, re.M)
    assert served.describe("Shop")["workers"][0]["memoryUsage"] > 1_000_000


def test_protobuf_comes_to_who_asks_for_it(served: Server) -> None:
    reply = requests.get(served.url("/metrics", "metrics"), headers={"Accept": PROTOBUF}, timeout=60)
    assert reply.headers["Content-Type"].replace(" ", "") == PROTOBUF
    assert b"jitney_latency_seconds" in reply.content and b"# TYPE" not in reply.content


def test_the_load_is_told_to_who_asks_for_it(served: Server, page: str) -> None:
    def ask(form: str, count: object) -> requests.Response:
        url = served.url("/Shop/price")
        return requests.post(url, json={"count": count}, headers={ASKED: form} if form else {}, timeout=60)

    form, _, report = ask("JSON", 2).headers["endpoint-load-metrics"].partition(" ")
    told = json.loads(report)
    assert form == "JSON" and {"cpu_utilization", "mem_utilization", "application_utilization"} <= told.keys(), told
    assert told["named_metrics"]["workers_ready"] == 2 and 0 <= told["named_metrics"]["rejected_share"] <= 1
    rejected = ask("text", "many")
    assert rejected.status_code == 400
    assert rejected.headers["endpoint-load-metrics"].startswith("TEXT cpu_utilization=")
    assert all("endpoint-load-metrics" not in ask(form, 2).headers for form in ("", "BIN"))
