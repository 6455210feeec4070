"""Batches of items through a definition: order, lengths, errors, cost, buckets, contexts."""

from __future__ import annotations

import json

import numpy as np
import pytest

import jitney
from jitney.call.errors import NotAnAnswer
from jitney.execution.splitting import split
from jitney.http.float_fields import FloatFields
from jitney.http.response import encode
from jitney.testing import load


def items(*values):
    return [{"x": value} for value in values]


@jitney.batch(max_batch_size=10)
def double(x: list[int]) -> list[int]:
    return [2 * one for one in x]


def test_results_come_back_in_the_callers_order():
    with load(double) as model:
        assert model.batch(items(3, 1, 2)) == [6, 2, 4]
        assert model.sizes == [3]


def test_no_call_has_more_items_than_the_maximum():
    with load(double) as model:
        assert model.batch(items(*range(23))) == [2 * one for one in range(23)]
        assert model.sizes == [10, 10, 3]


def test_arguments_by_name_reach_their_parameters_in_any_order():
    @jitney.batch
    def join(a: list[str], b: list[str], c: list[str] = "-") -> list[str]:
        return [f"{x}{y}{z}" for x, y, z in zip(a, b, c)]

    with load(join) as model:
        got = model.batch([{"a": "A1", "b": "B1"}, {"b": "B2", "a": "A2"}, {"c": "!", "b": "B3", "a": "A3"}])
    assert got == ["A1B1-", "A2B2-", "A3B3!"]


def test_an_item_with_a_wrong_argument_fails_alone():
    with load(double) as model:
        first, second, third = model.batch([{"x": 1}, {"y": 2}, {}])
    assert first == 2
    assert isinstance(second, jitney.BadInput)
    assert isinstance(third, jitney.BadInput)


@pytest.mark.parametrize("answer", [[1], [1, 2, 3, 4], [], (1, 2)])
def test_a_wrong_number_of_outputs_answers_no_item(answer):
    @jitney.batch
    def wrong(x):
        return answer

    with load(wrong) as model, pytest.raises(jitney.WrongLength, match="for 3 items"):
        model.batch(items(1, 2, 3))


@pytest.mark.parametrize("answer", [7, None, "abc", {1, 2, 3}, {}, {"a": 1}])
def test_an_output_that_cannot_be_split_answers_no_item(answer):
    @jitney.batch
    def wrong(x):
        return answer

    with load(wrong) as model, pytest.raises(jitney.WrongLength):
        model.batch(items(1, 2, 3))


def test_a_dictionary_of_columns_becomes_one_dictionary_per_item():
    @jitney.batch
    def columns(x):
        return {"value": x, "square": [one * one for one in x]}

    with load(columns) as model:
        assert model.batch(items(2, 3)) == [{"value": 2, "square": 4}, {"value": 3, "square": 9}]


def test_an_exception_in_an_items_place_is_its_own():
    @jitney.batch
    def picky(x):
        return [ValueError(f"no {one}") if one < 0 else one for one in x]

    with load(picky) as model:
        good, bad, fine = model.batch(items(1, -1, 2))
        assert (good, str(bad), fine) == (1, "no -1", 2)
        with pytest.raises(ValueError, match="no -5"):
            model.call(x=-5)


def test_items_named_in_a_raised_error_fail_and_the_others_are_run_without_them():
    @jitney.batch
    def picky(x):
        bad = {at: jitney.Error("odd", status=422) for at, one in enumerate(x) if one % 2}
        if bad:
            raise jitney.ItemErrors(bad)
        return x

    with load(picky) as model:
        outcomes = model.batch(items(2, 3, 4, 5))
        assert [getattr(one, "status", one) for one in outcomes] == [2, 422, 4, 422]
        assert model.sizes == [4, 2]


def test_an_exception_of_several_is_raised_and_of_one_is_its_own():
    @jitney.batch
    def failing(x):
        raise KeyError("k")

    with load(failing) as model:
        with pytest.raises(KeyError):
            model.batch(items(1, 2))
        assert isinstance(model.batch(items(1))[0], KeyError)


@jitney.batch(max_batch_size=10, cost=lambda x: x)
def weighed(x: list[int]) -> list[int]:
    return x


@pytest.mark.parametrize(
    ("costs", "sizes"),
    [((6, 6), [1, 1]), ((5, 5), [2]), ((1,) * 10, [10]), ((0, 10), [2]), ((6, 6, 3, 4, 4), [1, 2, 2])],
)
def test_cost_limits_what_meets_in_a_call_and_order_is_kept(costs, sizes):
    with load(weighed) as model:
        assert model.batch(items(*costs)) == list(costs)
        assert model.sizes == sizes


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [([2, 2, 2], [3]), ([4, 4, 4], [2, 1]), ([1, 1, 1, 5], [3, 1]), ([5, 1, 1], [2, 1]), ([10, 1], [1, 1])],
)
def test_padded_items_count_as_long_as_the_longest_of_them(lengths, sizes):
    padding = jitney.batch(name="f", max_batch_size=10, cost=lambda x: x, padded=True)(lambda x: x)
    with load(padding) as model:
        assert model.batch(items(*lengths)) == lengths
        assert model.sizes == sizes


def test_an_item_that_costs_more_than_a_batch_fails_alone():
    with load(weighed) as model:
        good, bad, fine = model.batch(items(6, 12, 3))
        assert (good, fine) == (6, 3)
        assert (bad.status, str(bad)) == (413, "this item costs 12 and a whole batch may cost 10")


@pytest.mark.parametrize("cost", [lambda x: 1 / 0, lambda x: "much", lambda x: -1, lambda x: float("nan")])
def test_a_cost_that_fails_fails_its_item_and_nothing_else(cost):
    function = jitney.batch(name="f", cost=lambda x: cost(x) if x == 13 else 1)(lambda x: x)
    with load(function) as model:
        good, bad, fine = model.batch(items(1, 13, 2))
        assert (good, fine) == (1, 2)
        assert isinstance(bad, Exception)
        assert model.batch(items(4)) == [4]


def test_buckets_never_meet():
    seen = []

    @jitney.batch(bucket=lambda x: len(x))
    def padded(x: list[str]) -> list[str]:
        seen.append(list(x))
        return [one.upper() for one in x]

    with load(padded) as model:
        assert model.batch(items("a", "bb", "c", "dd")) == ["A", "BB", "C", "DD"]
    assert seen == [["a", "c"], ["bb", "dd"]]


def test_every_item_gets_its_own_request():
    @jitney.batch
    def who(x: list[int], request: list[jitney.Request]) -> list[str]:
        return [f"{one}:{by.id}" for one, by in zip(x, request)]

    with load(who) as model:
        requests = [jitney.Request(id) for id in "abc"]
        assert model.batch(items(1, 2, 3), requests=requests) == ["1:a", "2:b", "3:c"]


def test_async_functions_and_single_items_run_the_same_way():
    @jitney.batch
    async def doubled(x: list[int]) -> list[int]:
        return [2 * one for one in x]

    async def one(x: int) -> int:
        return x + 1

    def fails_on_two(x: int) -> int:
        if x == 2:
            raise ValueError(x)
        return x

    with load(doubled) as model:
        assert model.batch(items(1, 2)) == [2, 4]
    with load(one) as model:
        assert model.batch(items(1, 2)) == [2, 3]
        assert model.sizes == [1, 1]
    with load(fails_on_two) as model:
        first, second, third = model.batch(items(1, 2, 3))
        assert (first, third) == (1, 3)
        assert isinstance(second, ValueError)


def test_a_class_is_made_once_and_ended_once():
    events = []

    @jitney.model
    class Model:
        def __init__(self):
            events.append("made")

        async def setup(self):
            events.append("set up")

        def teardown(self):
            events.append("torn down")

        @jitney.batch
        def predict(self, x):
            events.append(len(x))
            return x

    with load(Model) as model:
        model.batch(items(1, 2))
        model.call(x=1)
    assert events == ["made", "set up", 2, 1, "torn down"]


# -- streams ----------------------------------------------------------------------------------


@jitney.batch
def count_up(x: list[int]):
    for step in range(max(x)):
        yield [step if step < one else jitney.END for one in x]


@pytest.mark.parametrize("counts", [(0,), (2,), (5, 2), (0, 3, 1)])
def test_every_caller_of_a_stream_gets_its_own_sequence(counts):
    with load(count_up) as model:
        assert model.stream(items(*counts)) == [list(range(one)) for one in counts]


def test_pieces_that_cannot_be_hashed_and_async_streams_are_fine():
    @jitney.batch
    async def lists(x: list[int]):
        for step in range(2):
            yield [[one, step] for one in x]

    with load(lists) as model:
        assert model.stream(items(7, 8)) == [[[7, 0], [7, 1]], [[8, 0], [8, 1]]]


@pytest.mark.parametrize("late", [RuntimeError("late"), [1], 7])
def test_a_stream_that_breaks_keeps_what_was_sent_and_ends_with_the_error(late):
    @jitney.batch
    def breaks(x: list[int]):
        yield list(x)
        yield list(x)
        if isinstance(late, Exception):
            raise late
        yield late

    with load(breaks) as model:
        for pieces, one in zip(model.stream(items(1, 2)), (1, 2)):
            assert pieces[:2] == [one, one]
            assert isinstance(pieces[2], (RuntimeError, jitney.WrongLength))
            assert len(pieces) == 3


def test_one_caller_may_fail_or_end_while_the_others_go_on():
    @jitney.batch
    def mixed(x: list[int]):
        yield [1, 1, 1]
        yield [jitney.END, ValueError("mine"), 2]
        yield ["never", "never", 3]

    with load(mixed) as model:
        first, second, third = model.stream(items(0, 0, 0))
    assert (first, third) == ([1], [1, 2, 3])
    assert (second[0], str(second[1])) == (1, "mine")


def test_a_generator_of_one_item_streams_its_pieces():
    def words(text: str):
        yield from text.split()

    with load(words) as model:
        assert model.stream([{"text": "a b"}, {"text": "c"}]) == [["a", "b"], ["c"]]


ROWS = np.array([[0.5, float("nan")], [1.5, 2.5], [3.0, 4.0]], dtype=np.float32)


@pytest.mark.parametrize("result", [ROWS, ROWS[:, 0], ROWS > 1, {"a": ROWS, "b": [1, 2, 3]}, np.array(["x", "y", "z"])])
@pytest.mark.parametrize("sizes", [None, [2, 1]])
def test_rows_that_are_made_plain_together_are_answered_as_when_each_is_by_itself(result, sizes):
    count = len(sizes or [1, 2, 3])
    each, together = (split(result, count, sizes, 0, plain) for plain in (False, True))
    assert [encode(one) for one in each] == [encode(one) for one in together]
    assert not any(isinstance(one, np.ndarray) for one in together)


def test_arrays_whose_numbers_the_server_writes_stay_as_they_are():
    for sizes, first in ((None, [0.5, None]), ([2, 1], [[0.5, None], [1.5, 2.5]])):
        items = split(FloatFields(a=ROWS, b=[1, 2, 3]), len(sizes or ROWS), sizes, 0, plain=True)
        assert all(type(one) is FloatFields and isinstance(one["a"], np.ndarray) for one in items)
        assert json.loads(encode(items[0])[1])["a"] == first


def test_an_array_of_the_wrong_length_is_told_the_same_way():
    for plain in (False, True):
        with pytest.raises(jitney.WrongLength, match="the function returned 3 rows for 2 items"):
            split(ROWS, 2, None, 0, plain)
        with pytest.raises(NotAnAnswer, match="cannot be split"):
            split(np.array(3.0), 2, None, 0, plain)


def test_items_that_cost_too_much_together_are_called_apart_and_those_that_fit_at_once():
    @jitney.batch(max_batch_size=12, cost="len", padded=True)
    def longest(text: list[str]) -> list[int]:
        return [max(map(len, text))] * len(text)

    with load(longest) as model:
        assert model.batch([{"text": "ab"}, {"text": "abcd"}, {"text": "abc"}]) == [4, 4, 4]
        assert model.batch([{"text": "ab"}, {"text": "abcd"}, {"text": "abc"}, {"text": ""}]) == [4, 4, 4, 0]
        assert model.batch([{"text": "ab"}, {"text": "x" * 13}, {}])[0] == 2
        assert model.sizes == [3, 3, 1, 1]
