"""Metrics as operators meet them: a page that a real Prometheus parser reads, and lines in TorchServe's logs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from harness.archives import Store
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

DECLARED = """
dimensions:
  - &model "ModelName"
  - &level "Level"
ts_metrics:
  counter:
    - {name: Requests2XX, unit: Count, dimensions: [*level, "Hostname"]}
model_metrics:
  counter:
    - {name: Rows, unit: count, dimensions: [*model, *level]}
  histogram:
    - {name: Stage, unit: ms, dimensions: ["StageName", *model, *level]}
"""

HOSTILE_NAME = 'a"} 1\\nx{b="'

HOSTILE = [
    "[METRICS]Rows.Count:NaN|#ModelName:metrics,Level:Model|#type:COUNTER|#hostname:h,1",
    "[METRICS]Rows.Count:-5|#ModelName:metrics,Level:Model|#type:COUNTER|#hostname:h,1",
    f"[METRICS]Rows.Count:1|#ModelName:{HOSTILE_NAME},Level:Model|#type:COUNTER|#hostname:h,1",
    "[METRICS]" + "x" * 100_000,
    "[METRICS]",
]


@pytest.fixture
def torchserve(start: Callable[..., Server], store: Store, tmp_path: Path) -> Callable[..., Server]:
    """Starts `jitney torchserve` with the reporting model, or another one, and these properties."""

    def torchserve(properties: str, model: str = "metrics") -> Server:
        store.mar(model)
        config = tmp_path / "config.properties"
        config.write_text(
            f"{FREE_ADDRESSES}default_workers_per_model=1\ndisable_token_authorization=true\n{properties}"
        )
        arguments = ["torchserve", "--foreground", "--ts-config", config, "--models", f"{model}.mar"]
        return start(*arguments, "--model-store", store.path)

    return torchserve


def families(server: Server) -> dict[str, list]:
    """The samples of the page by the name of their family, as Prometheus itself reads them."""
    page = requests.get(server.url("/metrics", "metrics"), timeout=120).text
    return {family.name: family.samples for family in text_string_to_metric_families(page)}


def value(server: Server, family: str, sample: str, **labels: str) -> float:
    """The sum of the samples with this name and these labels."""
    samples = families(server).get(family, [])
    return sum(s.value for s in samples if s.name == sample and labels.items() <= s.labels.items())


def test_a_prometheus_parser_reads_the_page(shared: Server) -> None:
    assert shared.predict("echo", b"x").status_code == 200
    page = families(shared)
    assert {"Requests2XX", "QueueTime", "jitney_queue_seconds", "jitney_waiting"} <= page.keys()
    buckets = [
        s for s in page["jitney_compute_seconds"] if s.name.endswith("_bucket") and s.labels["model_name"] == "echo"
    ]
    counts = [sample.value for sample in buckets]
    assert counts == sorted(counts) and buckets[-1].labels["le"] == "+Inf"
    assert counts[-1] == value(shared, "jitney_compute_seconds", "jitney_compute_seconds_count", model_name="echo") >= 1


def test_a_handlers_metrics_are_added_up_as_declared(torchserve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "metrics.yaml").write_text(DECLARED)
    server = torchserve(f"metrics_mode=prometheus\nmetrics_config={tmp_path / 'metrics.yaml'}\n")
    server.predict("metrics", [["add_counter", "Rows", 2], ["add_counter", "Unlisted", 1]])
    server.predict("metrics", [*(["print", line] for line in HOSTILE), ["add_counter", "Rows", 3]])
    until(lambda: value(server, "Rows", "Rows_total", ModelName="metrics") == 5, "the rows are counted")
    page = families(server)
    assert "Requests2XX" in page and "Requests4XX" not in page and "Unlisted" not in page
    assert {frozenset(sample.labels) for sample in page["Rows"]} == {frozenset(("ModelName", "Level", "Hostname"))}
    assert {sample.labels["ModelName"] for sample in page["Rows"]} == {"metrics", HOSTILE_NAME}, "one value, escaped"
    assert "[METRICS]Rows" not in server.log, "metrics are no output"


def test_what_a_handler_counts_with_prometheus_client_is_on_the_page(torchserve: Callable[..., Server]) -> None:
    server = torchserve("metrics_mode=prometheus\n", model="counting")
    for _ in range(3):
        server.predict("counting", ["x"])
    until(lambda: value(server, "counted_rows", "counted_rows_total", kind="plain") == 3, "the rows are counted")
    assert "[METRICS]" not in server.log


def test_gauges_of_several_workers_are_put_together_as_their_mode_says(torchserve: Callable[..., Server]) -> None:
    server = torchserve("metrics_mode=prometheus\n", model="levels")
    server.manage("PUT", "/models/levels", min_worker=2, max_worker=2, synchronous="true")
    pids: set[int] = set()

    def both_answered() -> bool:
        with ThreadPoolExecutor(8) as pool:
            pids.update(int(one.text) for one in pool.map(lambda _: server.predict("levels", b"x"), range(8)))
        return len(pids) == 2

    until(both_answered, "both workers have answered")

    def shown() -> dict[str, list[float]]:
        found = {name: samples for name, samples in families(server).items() if name.startswith("level_")}
        for name in ("level_all", "level_liveall"):
            assert all(sample.labels["pid"] == str(int(sample.value)) for sample in found.get(name, []))
        assert all("pid" not in sample.labels for sample in found.get("level_sum", []))
        return {name.removeprefix("level_"): sorted(one.value for one in found[name]) for name in found}

    each, total, most = sorted(map(float, pids)), [float(sum(pids))], [float(max(pids))]
    expected = {"all": each, "liveall": each, "sum": total, "livesum": total, "max": most}
    until(lambda: expected.items() <= shown().items(), "the page has both")
    assert shown()["mostrecent"][0] in pids
    gone = max(pids)
    os.kill(gone, signal.SIGKILL)
    left = [float(min(pids))]
    until(lambda: shown()["livesum"] == shown()["liveall"] == left, "the worker that ended is left out")
    assert {"all": each, "sum": total, "max": most}.items() <= shown().items(), "and still counts where it is to"


def test_series_are_unique_and_go_on_when_another_version_answers(
    torchserve: Callable[..., Server], store: Store
) -> None:
    server = torchserve("metrics_mode=prometheus\nenable_model_api=true\n")
    server.store = store
    for version in ("1.0", "2.0"):
        server.register(store.mar("two", "echo", version=version))

    def counted(family: str) -> dict[str, float]:
        found = [s for s in families(server)[family] if s.labels["model_name"] == "two"]
        assert len(found) == len({s.labels["model_version"] for s in found}), "no series is there twice"
        return {s.labels["model_version"]: s.value for s in found}

    def predict(count: int, model: str = "two") -> None:
        assert all(server.predict(model, b"x").status_code == 200 for _ in range(count))

    requests_total, latency = "ts_inference_requests", "ts_inference_latency_microseconds"
    predict(5)
    assert server.manage("PUT", "/models/two/2.0/set-default").ok
    predict(2)
    predict(1, "two/2.0")
    assert counted(requests_total) == {"default": 7, "2.0": 1}
    before = counted(latency)
    assert server.manage("DELETE", "/models/two/1.0").ok
    assert counted(requests_total) == {"default": 7, "2.0": 1} and counted(latency) == before
    predict(1)
    assert counted(requests_total)["default"] == 8


def test_undeclared_metrics_are_detected_when_asked_for(torchserve: Callable[..., Server]) -> None:
    server = torchserve("metrics_mode=prometheus\nmodel_metrics_auto_detect=true\n")
    server.predict("metrics", [["add_time", "Step", 7.5], ["add_percent", "Share", 50]])
    until(lambda: value(server, "Share", "Share", Level="Model") == 50, "the share is shown")
    assert value(server, "Step", "Step", ModelName="metrics") == 7.5
    assert value(server, "PredictionTime", "PredictionTime", ModelName="metrics") > 0


def test_in_log_mode_there_are_lines_and_the_page_is_empty(torchserve: Callable[..., Server]) -> None:
    server = torchserve("")
    reply = server.predict("metrics", [])
    server.predict("ghost", b"")
    logs = server.cwd / "logs"
    request, host = reply.headers["x-request-id"], r"\|#hostname:[^,]+"
    for file, pattern in [
        ("ts_metrics.log", rf"Requests2XX\.Count:1\.0\|#Level:Host{host},timestamp:\d{{10}}$"),
        ("ts_metrics.log", rf"Requests4XX\.Count:1\.0\|#Level:Host{host},timestamp:\d{{10}}$"),
        (
            "ts_metrics.log",
            rf"ts_inference_requests_total\.Count:1\.0\|#model_name:metrics,model_version:default{host}",
        ),
        ("ts_metrics.log", rf"CPUUtilization\.Percent:\d+\.\d\|#Level:Host{host}"),
        (
            "model_metrics.log",
            rf"PredictionTime\.ms:\d+\.\d+\|#ModelName:metrics,Level:Model{host},requestID:{request}",
        ),
    ]:
        line = re.compile(rf"^\S+,\d{{3}} - {pattern}", re.MULTILINE)
        until(lambda line=line, file=file: line.search((logs / file).read_text()), f"{file} has {pattern}")
        logger = file.removesuffix(".log").upper()
        shown = re.compile(rf"^\S+,\d{{3}} \[INFO \] main {logger} - {pattern}", re.MULTILINE)
        until(lambda shown=shown: shown.search(server.stdout), f"the console has {pattern}")
    access = re.compile(r'main ACCESS_LOG - /127.0.0.1:\d+ "POST /predictions/metrics HTTP/1.1" 200 \d+$', re.MULTILINE)
    until(lambda: access.search(server.stdout), "the console has the access log")
    assert requests.get(server.url("/metrics", "metrics"), timeout=120).text == ""


def test_lines_of_a_request_are_written_before_its_answer_where_that_is_asked_for(
    torchserve: Callable[..., Server],
) -> None:
    server = torchserve("async_logging=false\ndisable_system_metrics=true\n")
    logs = server.cwd / "logs"
    for count in range(1, 4):
        request = server.predict("metrics", []).headers["x-request-id"]
        assert f"requestID:{request}" in (logs / "model_metrics.log").read_text()
        lines = (logs / "ts_metrics.log").read_text()
        assert lines.count("ts_inference_requests_total.Count:1.0|#model_name:metrics") == count
    assert "HandlerTime" not in (logs / "model_metrics.log").read_text(), "the handler is no BaseHandler"


def test_the_time_of_a_batch_is_detected_where_nobody_declared_it(
    torchserve: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "metrics.yaml").write_text(DECLARED)
    file = f"metrics_config={tmp_path / 'metrics.yaml'}\n"
    server = torchserve(f"metrics_mode=prometheus\nmodel_metrics_auto_detect=true\n{file}")
    server.predict("metrics", [])
    until(lambda: value(server, "PredictionTime", "PredictionTime", ModelName="metrics") > 0, "the time is shown")


def test_the_memory_of_workers_is_measured(torchserve: Callable[..., Server]) -> None:
    server = torchserve("metric_time_interval=1\n")
    until(lambda: server.describe("metrics")["workers"][0]["memoryUsage"] > 1_000_000, "the memory is measured")


def test_a_broken_metrics_file_costs_its_metrics_and_not_the_start(
    torchserve: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "metrics.yaml").write_text("ts_metrics: {counter: [{name: Requests2XX}]}")
    server = torchserve(f"metrics_mode=prometheus\nmetrics_config={tmp_path / 'metrics.yaml'}\n")
    server.logged("lacks its name or its unit")
    page = families(server)
    assert "Requests2XX" not in page and "jitney_waiting" in page
