"""Metrics of a model's own: what they count, and what the server is told."""

from __future__ import annotations

import pytest

import jitney
from jitney.definition import metrics


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(metrics, "_reporter", metrics._Reporter())


def test_only_what_has_changed_is_told():
    words = jitney.Counter("words_total", "Words\nseen", labels=("lang",))
    words.inc(3, lang="en")
    words.inc(lang="de")
    about = {"name": "words_total", "kind": "counter", "help": "Words seen"}
    assert words.changes() == [
        {**about, "labels": {"lang": "en"}, "value": 3.0},
        {**about, "labels": {"lang": "de"}, "value": 1.0},
    ]
    words.inc(2, lang="en")
    assert words.changes() == [{**about, "labels": {"lang": "en"}, "value": 2.0}]
    assert words.changes() == []
    assert words.value(lang="en") == 5


def test_levels_are_told_as_they_are_and_histograms_by_bucket():
    level, sizes = jitney.Gauge("level"), jitney.Histogram("sizes", buckets=(1, 2))
    level.set(0)
    assert [one["value"] for one in level.changes()] == [0.0]
    level.inc(5)
    level.dec(2)
    assert [one["value"] for one in level.changes()] == [3.0]
    for value in (1, 1.5, 9):
        sizes.observe(value)
    assert [(one["counts"], one["value"]) for one in sizes.changes()] == [([1, 1, 1], 11.5)]
    sizes.observe(2)
    assert [(one["bounds"], one["counts"], one["value"]) for one in sizes.changes()] == [([1, 2], [0, 1, 0], 2)]


def test_there_are_not_more_series_than_a_few(caplog):
    many = jitney.Counter("many", labels=("at",))
    for at in range(metrics.SERIES_MAX + 2):
        many.inc(at=at)
    assert (len(many.changes()), caplog.text.count("left out")) == (metrics.SERIES_MAX, 1)


def test_what_cannot_be_shown_is_refused_where_it_is_written():
    words = jitney.Counter("words", labels=("lang",))
    for wrong in (
        lambda: jitney.Counter("two words"),
        lambda: jitney.Counter("jitney_words"),
        lambda: jitney.Gauge("words"),
        lambda: jitney.Gauge("a", labels=("le",)),
        lambda: jitney.Histogram("a", buckets=(2, 1)),
        lambda: words.inc(-1, lang="en"),
        lambda: words.inc(1),
        lambda: words.inc(1, language="en"),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ValueError, match="once, outside of functions"):
        for _ in range(metrics.METRICS_MAX + 1):
            jitney.Counter("again")
