"""`jitney check` finds the mistakes that only show in company, and is content with what is right."""

from __future__ import annotations

import itertools

import pytest

import jitney
import jitney.testing
from jitney.check import examine


def mistakes(function, given=()):
    (report,) = examine(jitney.define(function), given)
    return report.mistakes


@jitney.batch
def right(x: list[int]) -> list[int]:
    return [one + 1 for one in x]


@jitney.batch
def too_short(x: list[int]) -> list[int]:
    return x[:-1] or x


@jitney.batch
def sorts(x: list[int]) -> list[int]:
    return sorted(x, reverse=True)


@jitney.batch
def mean(x: list[float]) -> list[float]:
    return [one - sum(x) / len(x) for one in x]


@jitney.batch
def scalar_hint(x: int) -> int:
    return x


@jitney.batch
def unsendable(x: list[int]) -> list[object]:
    return [object() for _ in x]


@jitney.batch
def not_a_list(x: list[int]) -> list[int]:
    return len(x)


_turn = itertools.count()


@jitney.batch
def by_turn(x: list[int]) -> list[int]:
    return [next(_turn) for _ in x]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (too_short, "returned 4 outputs for 5 items"),
        (sorts, "depends on the other items"),
        (mean, "depends on the other items"),
        (scalar_hint, "write list[int]"),
        (unsendable, "cannot be sent"),
        (not_a_list, "returned int"),
        (by_turn, "another order"),
    ],
)
def test_each_mistake_is_named(function, words):
    assert words in " ".join(mistakes(function))


def test_what_is_right_passes():
    assert mistakes(right) == []
    (report,) = examine(jitney.define(right))
    assert report.passed == ["5 items give 5 outputs", "outputs follow their items, alone and in any order"]


def test_examples_are_taken_where_they_are_given():
    @jitney.batch(examples=[{"row": {"a": 1}}, {"row": {"a": 2}}])
    def unknown(row):
        return [one["a"] for one in row]

    @jitney.batch
    def nobody_knows(row):
        return row

    assert mistakes(unknown) == []
    (report,) = examine(jitney.define(nobody_knows))
    assert "--sample" in report.remarks[0]
    assert mistakes(nobody_knows, [{"row": 1}, {"row": 2}]) == []


def test_an_example_is_for_the_endpoints_whose_parameters_it_has():
    class Kit:
        @jitney.batch
        def double(self, number: list[int]) -> list[int]:
            return [2 * one for one in number]

        @jitney.endpoint
        def hello(self, name: str) -> str:
            return name

    assert all(not report.mistakes for report in examine(jitney.define(Kit), [{"number": 7}]))
    strange = examine(jitney.define(Kit), [{"nmuber": 7}])
    assert all("not accepted" in report.mistakes[0] for report in strange)


def test_an_endpoint_that_needs_no_argument_is_run_without_one():
    @jitney.endpoint
    def count(words: int = 3) -> int:
        return words

    assert mistakes(count) == []
    with jitney.testing.load(count) as model:
        assert [model.post(body).body for body in ({}, {"words": 4}, 5, b"")] == [b"3", b"4", b"5", b"3"]
