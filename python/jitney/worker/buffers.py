"""Buffers for large bodies and batches, filled again once the handler has let go of them.

A new `bytearray` is cleared before it is filled, and often its memory must first be got from the system; together
that costs as much as to receive a body. A buffer is free when nobody but this file refers to it: views, arrays and
tensors that share its memory count as references. What it held before is overwritten in full.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Protocol

REUSED_BYTES_MIN = 16 << 10
"""Smaller ones are cheap to make."""
KEPT_BYTES_MAX = 32 << 20
"""What is kept in all; those that were given out longest ago are forgotten first."""
PROBES = 4
"""How many are looked at for one that is free and fits, from the one on that was given out longest ago."""
COUNT_AFTER = 64
"""After so many new ones all are measured anew, since handlers may resize them."""
BATCH_BYTES_MIN = 1 << 20
BATCH_BYTES_MAX = 64 << 20
BATCHES_KEPT = 8
BATCHES_BYTES_MAX = 256 << 20
"""What is kept for whole batches: the least and the most for each, and how many and how much in all."""


class BodyBuffers:
    """Gives out bytearrays of any size; one per reader."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept: deque[bytearray] = deque()
        self._kept_bytes = 0
        self._made = 0

    def take(self, size: int) -> bytearray:
        """A buffer of exactly this size, with any contents."""
        if not REUSED_BYTES_MIN <= size <= self._kept_bytes_max:
            return bytearray(size)
        kept = self._kept
        for _ in range(min(PROBES, len(kept))):
            kept.rotate(-1)
            if fits(kept[-1], size) and references(kept, -1) == FREE:
                return resized(kept[-1], size)
        return self._make(size)

    def _make(self, size: int) -> bytearray:
        buffer = bytearray(size)
        self._kept.append(buffer)
        self._kept_bytes += room(buffer)
        self._made += 1
        if self._made % COUNT_AFTER == 0:
            self._kept_bytes = sum(map(room, self._kept))
        while self._kept_bytes > self._kept_bytes_max and self._kept:
            self._kept_bytes -= room(self._kept.popleft())
        return buffer


class BatchBuffers:
    """Gives out memory for whole batches as views, of which the parts may be kept; one per reader."""

    def __init__(self) -> None:
        self._kept: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview:
        """A view of exactly this size, with any contents; its memory is free when the last view of it is gone."""
        kept = self._kept
        for at in range(len(kept)):
            if len(kept[at]) >= size and references(kept, at) == FREE:
                return memoryview(kept[at])[:size]
        buffer = bytearray(max(BATCH_BYTES_MIN, 1 << (size - 1).bit_length()) if size <= BATCH_BYTES_MAX else size)
        if size <= BATCH_BYTES_MAX:
            kept.append(buffer)
            while len(kept) > BATCHES_KEPT or sum(map(len, kept)) > BATCHES_BYTES_MAX:
                kept.popleft()
        return memoryview(buffer)[:size]


class _Kept(Protocol):
    def __getitem__(self, at: int, /) -> bytearray: ...


def references(buffers: _Kept, at: int) -> int:
    """How many references there are, among them the container's and those of this very call."""
    return sys.getrefcount(buffers[at])


FREE = references([bytearray()], 0)
"""The count of a buffer that is in one container and nowhere else."""
_EMPTY_SIZE = sys.getsizeof(bytearray())


def room(buffer: bytearray) -> int:
    """The bytes it has memory for."""
    return sys.getsizeof(buffer) - _EMPTY_SIZE


def fits(buffer: bytearray, size: int) -> bool:
    """Whether it can have this size in the memory that it has, and without wasting most of it."""
    return size < room(buffer) <= 2 * size


def resized(buffer: bytearray, size: int) -> bytearray:
    """The buffer with this size, in the same memory."""
    have = len(buffer)
    if have > size:
        del buffer[size:]
    elif have < size:
        buffer += bytes(size - have)
    return buffer
