"""Expressions for `cost` and `bucket`, and what the server is told to read of requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import jitney
from jitney.definition.expressions import extent, form_of, parse
from jitney.packing.pack import sizes
from jitney.testing import load


@pytest.mark.parametrize(
    ("text", "arguments", "value"),
    [
        ("len", {"text": "grün"}, 4),
        ("len", {"first": [1, 2], "second": [1, 2, 3]}, 2),
        ("len(second)", {"first": [1, 2], "second": [1, 2, 3]}, 3),
        (" len( second ) // 2 * 10 ", {"first": [1], "second": [1, 2, 3]}, 10),
        ("shape[1]", {"x": np.zeros((2, 5))}, 5),
        ("shape[-1]", {"x": np.zeros((2, 5, 7))}, 7),
        ("x.shape[0] * x.shape[1]", {"x": np.zeros((2, 5))}, 10),
        ("shape[1]", {"x": [[1, 2, 3], [4]]}, 3),
        ("shape[2]", {"x": [1, 2]}, 1),
        ("len", {"x": 3}, 1),
        ("len", {}, 1),
        ("7", {"x": 3}, 7),
    ],
)
def test_an_expression_measures_arguments(text, arguments, value):
    assert parse("cost", text).of(arguments) == value


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "lens",
        "len()",
        "len(x",
        "len x",
        "shape",
        "shape[]",
        "shape[a]",
        "x.len",
        "1 + 2",
        "len //",
        "len // 0",
        "len // len",
        "len * ",
        "-1",
        "1.5",
        "__import__('os')",
        "len(x)(y)",
        "shape[1][2]",
        "x.y.shape[0]",
        "",
    ],
)
def test_any_other_text_is_an_error_that_says_what_is_allowed(text):
    with pytest.raises(jitney.DefinitionError, match=r"bucket=.* is no expression: it may have len, len\(NAME\)"):
        jitney.batch(bucket=text)


def test_dimensions_of_values():
    assert extent([[1, 2], [3]]) == (2, 2)
    assert extent("abc") == extent(b"abc") == (3,)
    assert extent(["ab", "c"]) == (2,)
    assert extent({"a": 1, "b": 2}) == (2,)
    assert extent(pd.DataFrame({"a": [1, 2, 3]})) == (3, 1)
    assert extent(None) == extent(7) == ()


@pytest.mark.parametrize(
    ("hint", "form"),
    [
        (np.ndarray, "array"),
        (np.ndarray | None, "array"),
        (pd.DataFrame, "frame"),
        (pd.Series, "frame"),
        (str, "text"),
        (str | None, "text"),
        (bytes, "bytes"),
        (list[int], "json"),
        (dict, "json"),
        (Any, "any"),
        (int, None),
        (float | None, None),
    ],
)
def test_the_form_of_values_follows_from_the_hint(hint, form):
    assert form_of(hint) == form


def test_requests_that_are_one_item_each_are_not_read():
    @jitney.batch
    def plain(item: list[str], by: list[jitney.Request], count: list[int] = 1) -> list[str]:
        return item

    assert sizes(jitney.define(plain)) == {}
    assert sizes(jitney.define(jitney.endpoint(name="f")(lambda x: x))) == {}
    assert sizes(jitney.define(jitney.batch(name="f", cost=len)(plain))) == {}, "functions stay in the worker"


def test_rows_of_arrays_are_items():
    @jitney.batch(batch_dim=1)
    def rows(x: np.ndarray, by: list[jitney.Request], y: list[np.ndarray], z=None):
        return x

    assert sizes(jitney.define(rows)) == {
        "call": {
            "params": [
                {"name": "x", "form": "array", "required": True, "rows": True},
                {"name": "y", "form": "array", "required": True, "rows": False},
                {"name": "z", "form": "any", "required": False, "rows": True},
            ],
            "takes_any": False,
            "batch_dim": 1,
        }
    }


def test_the_server_is_told_expressions_by_the_places_of_their_parameters():
    @jitney.batch(cost="len // 4", bucket="other.shape[1] * 2")
    def weighed(text: list[str], other: list[list[int]]) -> list[str]:
        return text

    spec = sizes(jitney.define(weighed))["call"]
    assert spec["cost"] == [{"dim": {"param": 0, "dim": 0}}, {"over": 4}]
    assert spec["bucket"] == [{"dim": {"param": 1, "dim": 1}}, {"times": 2}]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"cost": "len(texts)"}, r"call: cost='len\(texts\)' needs a parameter 'texts'; it has text, count"),
        ({"bucket": "len(count)"}, r"call: bucket='len\(count\)': 'count' is int, which has no length"),
    ],
)
def test_an_expression_about_nothing_is_an_error(option, why):
    @jitney.batch(**option)
    def f(text: list[str], count: list[int]) -> list[str]:
        return text

    with pytest.raises(jitney.DefinitionError, match=why):
        jitney.define(f)


def test_workers_keep_to_expressions_too():
    seen = []

    @jitney.batch(max_batch_size=6, cost="len", bucket="len(text) // 2")
    def f(text: list[str]) -> list[str]:
        seen.append(list(text))
        return text

    with load(f) as model:
        texts = ["a", "bb", "ccc", "d", "eee", "ff"]
        assert model.batch([{"text": text} for text in texts]) == texts
        assert seen == [["a", "d"], ["bb", "ccc"], ["eee", "ff"]]
        [bad] = model.batch([{"text": "seven.."}])
        assert (bad.status, str(bad)) == (413, "this item costs 7 and a whole batch may cost 6")


def test_rows_count_as_items_where_they_are_padded():
    @jitney.batch(max_batch_size=12, cost="shape[1]", padded=True)
    def f(x: np.ndarray) -> np.ndarray:
        return x

    with load(f) as model:
        model.batch([{"x": np.zeros((2, 3))}, {"x": np.zeros((2, 3))}, {"x": np.zeros((1, 3))}])
        assert model.sizes == [4, 1], "four rows of length 3 fill a batch"
