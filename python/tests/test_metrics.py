"""Metric lines on stdout and the calls that write them."""

from __future__ import annotations

import re
import sys
import types

import pytest
import wire

from ts.metrics.dimension import Dimension
from ts.metrics.metric_cache_errors import MetricsCacheKeyError, MetricsCacheValueError
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from ts.metrics.metric_type_enum import MetricTypes
from ts.metrics.metrics_store import MetricsStore
from ts.service import emit_metrics

TAIL = r"\|#hostname:[^,]+,\d{10}"
OWN = "ModelName:m,Level:Model"


@pytest.fixture
def cache(monkeypatch):
    monkeypatch.setattr("jitney.torchserve.metrics._past_logging", True)
    metrics = MetricsCacheYamlImpl()
    metrics.set_model_name("m")
    metrics.set_request_ids({0: "id-a", 1: "id-b"})
    return metrics


@pytest.mark.parametrize(
    "call, start, ids",
    [
        (lambda m: m.add_counter("Hits", 2), f"Hits.Count:2|#{OWN}|#type:COUNTER", "id-a,id-b"),
        (lambda m: m.add_counter("Hits", 2.0, 1), f"Hits.Count:2.0|#{OWN}|#type:COUNTER", "id-b"),
        (lambda m: m.add_counter("Hits", 1, [1, 0]), f"Hits.Count:1|#{OWN}|#type:COUNTER", "id-b,id-a"),
        (lambda m: m.add_time("T", 1.5), f"T.Milliseconds:1.5|#{OWN}|#type:GAUGE", "id-a,id-b"),
        (lambda m: m.add_time("T", 2, 0, "s"), f"T.Seconds:2|#{OWN}|#type:GAUGE", "id-a"),
        (lambda m: m.add_size("S", 3), f"S.Megabytes:3|#{OWN}|#type:GAUGE", "id-a,id-b"),
        (lambda m: m.add_size("S", 3, unit="kB"), f"S.Kilobytes:3|#{OWN}|#type:GAUGE", "id-a,id-b"),
        (lambda m: m.add_percent("P", 50.0), f"P.Percent:50.0|#{OWN}|#type:GAUGE", "id-a,id-b"),
        (
            lambda m: m.add_metric("H", 1, "ms", 0, [Dimension("Stage", "pre")], MetricTypes.HISTOGRAM),
            f"H.Milliseconds:1|#Stage:pre,{OWN}|#type:HISTOGRAM",
            "id-a",
        ),
        (lambda m: m.add_metric("U", 1, "", 0), f"U.unit:1|#{OWN}|#type:COUNTER", "id-a"),
        (lambda m: m.add_metric("U", 1, "furlong", 0), f"U.furlong:1|#{OWN}|#type:COUNTER", "id-a"),
        (
            lambda m: m.add_metric("I", 1, "count", 0, [Dimension("Level", "Host"), Dimension("ModelName", "other")]),
            "I.Count:1|#Level:Host,ModelName:other|#type:COUNTER",
            "id-a",
        ),
        (lambda m: m.add_error("E", 1), "E.unit:1|#ModelName:m,Level:Error|#type:COUNTER", ""),
    ],
)
def test_a_report_is_one_line_of_the_wire_format(cache, capsys, call, start, ids):
    call(cache)
    tail = f",{ids}" if ids else ""
    assert re.fullmatch(re.escape("[METRICS]" + start) + TAIL + re.escape(tail) + "\n", capsys.readouterr().out)


def test_a_cache_that_was_told_of_no_requests_reports_errors(caplog):
    caplog.set_level("INFO")
    MetricsCacheYamlImpl().add_size("S", 3, dimensions=[Dimension("ModelName", "m")])
    assert "S.Megabytes:3|#ModelName:m,Level:Error|#type:GAUGE" in caplog.text


def test_outside_a_worker_lines_are_messages_of_the_root_logger(cache, monkeypatch, capsys, caplog):
    monkeypatch.setattr("jitney.torchserve.metrics._past_logging", False)
    caplog.set_level("INFO")
    cache.add_counter("Hits", 2)
    assert (
        caplog.messages[0].startswith(f"[METRICS]Hits.Count:2|#{OWN}|#type:COUNTER")
        and caplog.records[0].name == "root"
    )
    assert capsys.readouterr().out == ""


def test_dimensions_a_handler_names_itself_are_not_added_again(cache, capsys):
    cache.add_counter("Hits", 1, dimensions=[Dimension("Level", "Mine")])
    cache.get_metric("Hits").update(2, "id", [Dimension("Level", "Other")])
    lines = [line.partition("|#type")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["[METRICS]Hits.Count:1|#Level:Mine,ModelName:m", "[METRICS]Hits.Count:2|#Level:Other,ModelName:m"]


def test_a_declared_metric_is_updated_by_dimension_values(cache, capsys):
    metric = cache.add_metric_to_cache("Rows", "count", ["Table", "Kind"])
    assert cache.get_metric("Rows", MetricTypes.COUNTER) is metric
    metric.add_or_update(4, ["cats", "wild"], request_id="id-z")
    line = capsys.readouterr().out
    assert line.startswith("[METRICS]Rows.Count:4|#Table:cats,Kind:wild|#type:COUNTER|#hostname:")
    assert line.endswith(",id-z\n")
    assert cache.cache_keys() == ["counter:Rows"]


def test_negative_counters_and_wrong_dimensions_are_logged_and_not_raised(cache, capsys, caplog):
    metric = cache.add_metric_to_cache("Rows", "count", ["Table"])
    metric.add_or_update(-1, ["cats"])
    metric.add_or_update(1, ["cats", "dogs"])
    metric.update(1, "id", [Dimension("Other", "x")])
    assert capsys.readouterr().out == "" and len(caplog.records) == 3


def test_wrong_units_and_unknown_metrics_are_errors(cache):
    with pytest.raises(MetricsCacheValueError):
        cache.add_time("T", 1, unit="count")
    with pytest.raises(MetricsCacheValueError):
        cache.add_size("S", 1, unit="ms")
    with pytest.raises(MetricsCacheKeyError):
        cache.get_metric("never", MetricTypes.GAUGE)


def fake_yaml(monkeypatch, tmp_path, config):
    yaml = types.ModuleType("yaml")
    yaml.safe_load = lambda file: config
    monkeypatch.setitem(sys.modules, "yaml", yaml)
    path = tmp_path / "metrics.yaml"
    path.write_text("")
    return MetricsCacheYamlImpl(str(path))


def test_a_metrics_file_declares_its_model_metrics(monkeypatch, tmp_path):
    metrics = {"gauge": [{"name": "G", "unit": "ms", "dimensions": ["ModelName", "Level"]}]}
    cache = fake_yaml(monkeypatch, tmp_path, {"model_metrics": metrics})
    cache.initialize_cache()
    assert cache.get_metric("G", MetricTypes.GAUGE).unit == "Milliseconds"


@pytest.mark.parametrize(
    "config, error",
    [
        ({}, MetricsCacheKeyError),
        ({"model_metrics": {}}, MetricsCacheValueError),
        ({"model_metrics": {"meter": []}}, MetricsCacheKeyError),
        ({"model_metrics": {"gauge": [{"name": "G"}]}}, MetricsCacheKeyError),
    ],
)
def test_a_wrong_metrics_file_is_an_error(monkeypatch, tmp_path, config, error):
    with pytest.raises(error):
        fake_yaml(monkeypatch, tmp_path, config).initialize_cache()


def test_the_older_store_collects_and_writes_what_is_repeated(capsys, monkeypatch):
    monkeypatch.setattr("jitney.torchserve.metrics._past_logging", True)
    store = MetricsStore({0: "a", 1: "b"}, "m")
    store.add_counter("C", 1, 0)
    store.add_counter("C", 2, 0)
    store.add_time("T", 5, unit="s")
    store.add_error("error", "text")
    store.add_metric("Own", 7, "kB", 1, [Dimension("d", "v")])
    with pytest.raises(ValueError):
        store.add_time("T", 5, unit="MB")
    assert capsys.readouterr().out.startswith(f"[METRICS]C.Count:2|#{OWN}")
    emit_metrics(store.store)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("|#type")[0] for line in lines] == [
        f"[METRICS]C.Count:1|#{OWN}",
        f"[METRICS]T.Seconds:5|#{OWN}",
        "[METRICS]error.unit:text|#Level:Error",
        f"[METRICS]Own.Kilobytes:7|#d:v,{OWN}",
    ]


def test_a_handlers_metric_carries_the_ids_of_its_batch(worker, capsys):
    one = worker("""
        def handle(data, context):
            context.metrics.add_counter("Seen", len(data or ()))
            return ["" for _ in data or ()]
    """)
    one.ask([wire.item(request_id="first"), wire.item(request_id="second")])
    one.ask([wire.item(request_id="third")])
    lines = capsys.readouterr().out.splitlines()
    ends = [line.partition("#hostname:")[2].split(",")[2:] for line in lines]
    assert ends == [[], ["first", "second"], ["third"]]
    levels = [re.search("Level:([A-Za-z]+)", line)[1] for line in lines]
    assert levels == ["Model"] * 3, "what is reported while the model loads is the model's, as in TorchServe"


def test_metrics_that_the_server_declares_can_be_had_by_name(worker, capsys):
    declared = {"gauge": [{"name": "G", "unit": "ms", "dimensions": ["Level", "ModelName"]}]}
    source = """
        from ts.metrics.metric_type_enum import MetricTypes
        def handle(data, context):
            context.metrics.get_metric("G", MetricTypes.GAUGE).add_or_update(1, ["Model", "m"])
            context.metrics.add_time("G", 2)
            return ["" for _ in data or ()]
    """
    worker(source, model_metrics=declared)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("|#type")[0] for line in lines] == [
        "[METRICS]G.Milliseconds:1|#Level:Model,ModelName:m",
        "[METRICS]G.Milliseconds:2|#ModelName:m,Level:Model",
    ]


@pytest.mark.parametrize(
    ("fields", "tail"), [({}, ",r0,r1"), ({"metric_ids": True}, ",r0,r1"), ({"metric_ids": False}, "")]
)
def test_requests_are_named_where_the_server_wants_it(worker, capsys, fields, tail):
    one = worker(
        """
        def handle(data, context):
            if data is None:
                return None
            context.metrics.add_time("T", 1.5)
            return [",".join(context.metrics.request_ids.values())] * len(data)
        """,
        **fields,
    )
    assert [reply["body"] for reply in one.ask(wire.bodies(b"a", b"b"))] == [b"r0,r1"] * 2
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\[METRICS\]T.Milliseconds:1.5\|.*\|#hostname:[^,]*,\d+" + tail, line)
