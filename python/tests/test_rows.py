"""`Rows`: lists of several callers that are joined as arrays are."""

from __future__ import annotations

import numpy as np
import pytest

import jitney
from jitney import testing
from jitney.definition.definition import define
from jitney.definition.samples import samples
from jitney.packing.pack import sizes
from jitney.values.convert import convert
from jitney.values.rows import AnyRows, Rows


@jitney.batch(max_batch_size=3)
def lengths(texts: Rows[str], scale: list[int] = 1) -> list[int]:
    return [len(text) for text in texts]


def test_rows_of_callers_run_together_and_come_back_apart():
    with testing.load(lengths) as model:
        assert model.batch([{"texts": ["a", "bb"]}, {"texts": ["ccc"]}]) == [[1, 2], [3]]
        assert model.sizes == [3]


def test_a_caller_with_more_rows_than_a_call_takes_gets_one_answer():
    @jitney.batch(max_batch_size=3)
    def counts(texts: Rows[str]) -> list[int]:
        return [len(texts)] * len(texts)

    with testing.load(counts) as model:
        assert model.call(texts=list("abcdefg")) == [3, 3, 3, 3, 3, 3, 1]
        assert model.sizes == [3, 3, 1]


def test_the_server_counts_rows():
    (told,) = sizes(define(lengths)).values()
    assert told["params"][0] == {"name": "texts", "form": "array", "required": True, "rows": True}


def test_rows_are_converted_one_by_one():
    assert convert("x", ["1", 2], Rows[int]) == [1, 2]
    assert type(convert("x", [1], Rows[int])) is Rows
    with pytest.raises(jitney.BadInput, match="expected a list"):
        convert("x", 3, Rows[int])
    assert type(convert("x", [1], AnyRows)) is Rows
    array = np.ones(2)
    assert convert("x", array, AnyRows) is array


def test_items_of_rows_can_be_made_up():
    made = samples(define(lengths).endpoints[0])
    assert not made.guessed
    assert all(isinstance(text, str) for item in made.tries[0] for text in item["texts"])


def test_tensors_are_rows_too():
    endpoint = define(lengths).endpoints[0]
    assert endpoint.tensors.inputs[0].tensor.datatype == "BYTES"
    assert list(endpoint.tensors.inputs[0].tensor.shape) == [-1]
