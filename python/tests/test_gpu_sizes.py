"""Allowed batch sizes: which there are, and which one a batch is run at."""

from __future__ import annotations

import pytest

from jitney.gpu.shapes import allowed_sizes, compiled_sizes, in_order, next_size


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (1, [1]),
        (0, [1]),
        (2, [1, 2]),
        (8, [1, 2, 4, 8]),
        (100, [1, 2, 4, 8, 16, 32, 64, 96, 100]),
        (96, [1, 2, 4, 8, 16, 32, 64, 96]),
        (256, [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256]),
    ],
)
def test_sizes_end_with_the_largest_batch(largest, sizes):
    assert allowed_sizes(largest) == sizes


def test_a_batch_runs_at_the_next_larger_size():
    sizes = [1, 4, 8]
    assert [next_size(sizes, count) for count in (1, 2, 4, 5, 8, 9)] == [1, 4, 4, 8, 8, None]


def test_given_sizes_cover_the_largest_batch_and_no_more():
    assert in_order([8, 2, 2, 4]) == [2, 4, 8]
    assert in_order([8, 2, 4, 16], largest=5) == [2, 4, 8]
    assert in_order([2, 4], largest=5) == [2, 4, 5]
    assert in_order([0, -1, 4], largest=4) == [4]


def test_compiled_sizes_are_fewer():
    assert compiled_sizes(256) == [1, 4, 16, 64, 128, 256]
    assert compiled_sizes(100) == [1, 4, 16, 64, 100] and compiled_sizes(8) == [1, 4, 8] and compiled_sizes(1) == [1]
