"""Which shapes a function is run at, and how items are stretched for them; without torch."""

from __future__ import annotations

import numpy as np
import pytest
import wire

import jitney
from jitney.execution.grouping import Item, plan
from jitney.execution.warm_up import stretch
from jitney.gpu.padding import fill
from jitney.gpu.shapes import AllowedShapes


def test_a_length_is_rounded_up_and_a_longer_one_stays():
    shapes = AllowedShapes(lengths=(32, 64))
    assert [shapes.length_for(one) for one in (1, 32, 33, 64, 65)] == [32, 32, 64, 64, 65]
    assert AllowedShapes().length_for(7) == 7


def test_only_shapes_that_a_call_can_come_to_are_run():
    shapes = AllowedShapes((1, 4, 8), (32, 64), most=160)
    # Two items of 33 tokens are padded to 4 of 64; five of 33 would be 165 tokens.
    assert shapes.all() == [(4, 64), (1, 64), (8, 32), (4, 32), (1, 32)]
    assert AllowedShapes((1, 4), most=4).all() == [(4, None), (1, None)]


def test_sizes_are_chosen_where_none_are_given():
    assert AllowedShapes(most=6).graph_sizes() == (1, 2, 4, 6)
    assert AllowedShapes(lengths=(32, 64), most=256).graph_sizes() == (1, 2, 4, 8)


def test_lists_are_written_one_below_the_other_and_their_lengths_behind():
    whole = np.empty(3 * 4 + 3, dtype=np.int64)
    fill(whole, [[1, 2, 3], [], [4]], 4, 9)
    assert whole[:12].reshape(3, 4).tolist() == [[1, 2, 3, 9], [9, 9, 9, 9], [4, 9, 9, 9]]
    assert whole[12:].tolist() == [3, 0, 1]


def embed(cost="len", **options):
    @jitney.batch(max_batch_size=64, cost=cost, sizes=[1, 2], lengths=[4, 8], **options)
    def one(text: list[str]) -> list[int]:
        return [len(each) for each in text]

    return jitney.define(one).default


def test_a_sample_is_stretched_where_the_cost_is_the_length_of_one_argument():
    assert stretch(embed(), {"text": "abc"}, 8) == {"text": "abcabcab"}
    assert stretch(embed(), {"text": "abc"}, 2) == {"text": "ab"}
    assert stretch(embed(), {"text": ""}, 8) is None
    assert stretch(embed("len // 2"), {"text": "abc"}, 8) is None
    assert stretch(embed(len), {"text": "abc"}, 8) is None


def test_a_call_has_no_more_items_than_the_largest_size():
    made = plan(embed(len), [Item({"text": "abc"}) for _ in range(5)])
    assert [one.positions for one in made.invocations] == [[0, 1], [2, 3], [4]]


def test_another_largest_batch_counts_items_where_there_are_sizes_and_costs_otherwise():
    assert embed().most_items == 2
    smaller = embed().resized(1)
    assert (smaller.shapes, smaller.max_batch_size) == (AllowedShapes((1,), (4, 8), 64), 64)
    assert embed().resized(5).sizes == (1, 2, 5)


def test_the_operators_sizes_and_lengths_are_used_instead_of_the_definitions_own():
    @jitney.batch(max_batch_size=64, cost="len", sizes=[1, 2], lengths=[4, 8])
    def one(text: list[str]) -> list[int]:
        return [len(each) for each in text]

    definition = jitney.define(one)
    assert definition.reshaped([1, 2], [4, 8]) is definition
    assert definition.reshaped([], [16]).default.shapes == AllowedShapes((1, 2), (16,), 64)
    assert definition.reshaped([1, 8], []).default.shapes == AllowedShapes((1, 8), (4, 8), 64)


SOURCE = """
import jitney

class Model:
    calls = []

    @jitney.batch(max_batch_size=16, cost="len", sizes=[1, 2], lengths=[4, 8], warm_up=[{"text": "ab"}])
    def embed(self, text: list[str]) -> list[str]:
        self.calls.append((len(text), len(text[0])))
        return text

    @jitney.batch(sizes=[1, 4], warm_up=[{"x": 0}])
    def invert(self, x: list[int]) -> list[float]:
        return [1 / one for one in x]

    @jitney.endpoint
    def called(self) -> list:
        return self.calls
"""


@pytest.fixture
def warmed(raw_worker, model, tmp_path):
    one = raw_worker()
    settings = {"jitney": {"object": "warm_app:Model", "directory": str(tmp_path)}}
    one.load(model(SOURCE, "warm_app.py"), "warm_app:Model", model_yaml_config=settings)
    return one


def test_a_worker_runs_its_samples_at_every_shape_and_tells_how_far_it_is_before_it_serves(warmed):
    told = []
    while (frame := warmed.read())[0] == wire.PROGRESS:
        told.append(wire.json.loads(frame[3]))
    loaded = wire.json.loads(frame[3])
    assert [one["what"] for one in told] == [
        "ran 2 items of length 8",
        "ran 1 item of length 8",
        "ran 2 items of length 4",
        "ran 1 item of length 4",
        "ran 4 items",
    ]
    assert [(one["done"], one["of"]) for one in told] == [(at, 6) for at in range(1, 6)]
    assert loaded["sizes"] == [1, 2, 4]
    assert [(row[0], row[3]) for row in loaded["measured"]] == [(2, 8), (1, 8), (2, 4), (1, 4)]
    assert all(time >= 0 for row in loaded["measured"] for time in row)
    assert loaded["notes"] == [
        "invert is not warmed up: 4 items failed with ZeroDivisionError: division by zero",
    ]
    (answer,) = warmed.ask([wire.item([("body", "", b"")], [("url_path", "called")])])
    calls = [(2, 8), (1, 8), (2, 4), (1, 4)]
    assert wire.json.loads(answer["body"]) == [list(one) for one in calls for _ in range(2)]
