"""Metrics of `prometheus_client` in a worker: what the server is told of a registry."""

from __future__ import annotations

import json
import os
import sys
import threading

import prometheus_client as library
import pytest
from prometheus_client.core import GaugeMetricFamily

from jitney.worker import prometheus
from jitney.worker.prometheus import RegistryReader

OF_PROCESS = {"mode": "all", "pid": os.getpid()}


@pytest.fixture
def registry():
    return library.CollectorRegistry()


def test_only_what_has_changed_is_told(registry):
    reader = RegistryReader(registry)
    words = library.Counter("words", "Words\nseen", ["lang"], registry=registry)
    level = library.Gauge("level", "A level", registry=registry)
    words.labels("en").inc(3)
    about = {"name": "words_total", "kind": "counter", "help": "Words seen", "labels": {"lang": "en"}}
    assert list(reader.changes()) == [
        {**about, "value": 3.0},
        {"name": "level", "kind": "gauge", "help": "A level", "labels": {}, "value": 0.0, **OF_PROCESS},
    ]
    words.labels("en").inc(2)
    level.set(-4)
    assert [(one["name"], one["value"]) for one in reader.changes()] == [("words_total", 2.0), ("level", -4.0)]
    assert list(reader.changes()) == []


def test_histograms_are_told_by_single_buckets_and_summaries_as_two_totals(registry):
    reader = RegistryReader(registry)
    sizes = library.Histogram("sizes", "Sizes", ["kind"], buckets=(1, 2), registry=registry)
    seen = library.Summary("seen", "Seen", registry=registry)
    for value in (1, 1.5, 9):
        sizes.labels("a").observe(value)
    seen.observe(2)
    told = {one["name"]: one for one in reader.changes()}
    assert (told["sizes"]["bounds"], told["sizes"]["counts"], told["sizes"]["value"]) == ((1.0, 2.0), [1, 1, 1], 11.5)
    assert told["sizes"]["labels"] == {"kind": "a"} and told["sizes"]["kind"] == "histogram"
    assert (told["seen_count"]["value"], told["seen_sum"]["value"], told["seen_sum"]["kind"]) == (1, 2, "counter")
    sizes.labels("a").observe(2)
    (change,) = reader.changes()
    assert (change["counts"], change["value"]) == ([0, 1, 0], 2.0)


def test_what_tells_about_the_process_is_the_servers_affair(registry):
    library.ProcessCollector(registry=registry)
    library.Gauge("ts_level", "A name of the server's", registry=registry).set(1)
    assert list(RegistryReader(registry).changes()) == []


def test_a_gauge_is_told_with_its_mode_and_others_have_none(registry):
    library.Gauge("busy", "Busy", multiprocess_mode="livesum", registry=registry).set(1)
    library.Info("build", "Build", registry=registry).info({"version": "1"})

    class Own:
        def collect(self):
            yield GaugeMetricFamily("own", "Own", value=3)

    registry.register(Own())
    told = {one["name"]: one.get("mode") for one in RegistryReader(registry).changes()}
    assert told == {"busy": "livesum", "own": "all"}


def test_a_library_that_the_first_request_imports_is_told_from_then_on(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "prometheus_client")
    end = prometheus.begin()
    assert any(isinstance(one, prometheus.Teller) for one in sys.meta_path)
    import prometheus_client as late

    asked = late.Counter("asked_late", "Asked")
    asked.inc(3)
    end()
    late.REGISTRY.unregister(asked)
    lines = [json.loads(line.removeprefix("[METRICS]")) for line in capsys.readouterr().out.splitlines()]
    assert [one["value"] for one in lines if one["name"] == "asked_late_total"] == [3.0]
    assert not any(isinstance(one, prometheus.Teller) for one in sys.meta_path)


def test_a_worker_without_the_library_has_no_thread_for_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "prometheus_client")
    before = set(threading.enumerate())
    end = prometheus.begin()
    assert set(threading.enumerate()) <= before
    end()
