"""Large bodies' buffers: used again when they are free, never while anybody can see them."""

from __future__ import annotations

import pytest

from jitney.worker.buffers import BATCH_BYTES_MAX, BATCHES_KEPT, REUSED_BYTES_MIN, BatchBuffers, BodyBuffers, room

SIZE = 1 << 20


def memory(buffer: bytearray) -> int:
    """Where a buffer lies; equal numbers are the same buffer while both exist."""
    return id(buffer)


def test_a_buffer_is_used_again_once_it_is_let_go():
    buffers = BodyBuffers()
    first = buffers.take(SIZE)
    where, other = memory(first), buffers.take(SIZE)
    assert other is not first
    del first
    assert memory(buffers.take(SIZE)) == where


@pytest.mark.parametrize(
    "hold",
    [lambda it: it, memoryview, lambda it: memoryview(it)[5:9], lambda it: [it], lambda it: {"body": it}.values()],
)
def test_a_buffer_that_anybody_can_see_is_left_alone(hold):
    buffers = BodyBuffers()
    held = hold(buffers.take(SIZE))
    assert len({memory(one) for one in [buffers.take(SIZE), buffers.take(SIZE)]}) == 2
    content = bytes(memoryview(held)) if isinstance(held, (bytearray, memoryview)) else None
    for _ in range(3):
        buffers.take(SIZE)[:] = b"x" * SIZE
    if content is not None:
        assert bytes(memoryview(held)) == content


def test_an_array_on_a_buffer_holds_it():
    numpy = pytest.importorskip("numpy")
    buffers = BodyBuffers()
    array = numpy.frombuffer(buffers.take(SIZE), dtype=numpy.uint8)
    buffers.take(SIZE)[:] = b"x" * SIZE
    assert not array.any()


@pytest.mark.parametrize("size", [SIZE, SIZE - 1, SIZE * 3 // 4, SIZE // 2 + 1])
def test_a_free_buffer_serves_smaller_bodies_and_then_larger_ones_again(size):
    buffers = BodyBuffers()
    where = memory(buffers.take(SIZE))
    smaller = buffers.take(size)
    assert (memory(smaller), len(smaller)) == (where, size)
    del smaller
    again = buffers.take(SIZE)
    assert (memory(again), len(again)) == (where, SIZE)


def test_a_handler_may_change_and_resize_what_it_got():
    buffers = BodyBuffers()
    mine = buffers.take(SIZE)
    mine[:] = b"short"
    mine.clear()
    del mine
    assert len(buffers.take(SIZE)) == SIZE


def test_small_buffers_and_too_large_ones_are_not_kept():
    buffers = BodyBuffers(4 * SIZE)
    for size in (0, REUSED_BYTES_MIN - 1, 4 * SIZE + 1):
        assert len(buffers.take(size)) == size
    assert not buffers._kept


def test_no_more_is_kept_than_allowed_whatever_is_held():
    buffers = BodyBuffers(4 * SIZE)
    held = [buffers.take(SIZE + step) for step in range(0, 20_000, 1000)]
    assert 3 * SIZE < sum(map(room, buffers._kept)) <= 4 * SIZE
    assert [len(one) for one in held] == [SIZE + step for step in range(0, 20_000, 1000)]


def test_one_that_is_held_for_ever_does_not_keep_the_others_from_being_used_again():
    buffers = BodyBuffers()
    held = buffers.take(SIZE)
    where = {memory(buffers.take(SIZE)) for _ in range(20)}
    assert len(where) == 1 and memory(held) not in where


def test_memory_of_a_batch_is_used_again_when_the_last_view_of_it_is_gone():
    buffers = BatchBuffers()
    first = buffers.take(3 * SIZE)
    part, where = first[SIZE : SIZE + 9], memory(first.obj)
    part[:] = b"mine here"
    del first
    other = buffers.take(2 * SIZE)
    other[:] = b"x" * len(other)
    assert memory(other.obj) != where and bytes(part) == b"mine here"
    del part
    again = buffers.take(SIZE + 1)
    assert (memory(again.obj), len(again)) == (where, SIZE + 1)


def test_no_more_batches_are_kept_than_allowed():
    buffers = BatchBuffers()
    held = [buffers.take(SIZE) for _ in range(20)]
    assert len(buffers._kept) == BATCHES_KEPT and len({memory(one.obj) for one in held}) == 20
    assert len(buffers.take(BATCH_BYTES_MAX + 1)) == BATCH_BYTES_MAX + 1
    assert len(buffers._kept) == BATCHES_KEPT
