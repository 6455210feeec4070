"""Buffers for large bodies, filled again once the handler has let go of them.

A new `bytearray` is cleared before it is filled, and often its memory must first be got from the system; together
that costs as much as to receive a body. A buffer is free when nobody but this file refers to it: views, arrays and
tensors that share its memory count as references. What it held before is overwritten in full.
"""

from __future__ import annotations

import sys

REUSED_BYTES_MIN = 64 << 10
"""Smaller ones are cheap to make."""
KEPT_BYTES_MAX = 32 << 20
"""What is kept in all; those that were made first are forgotten first."""


class BodyBuffers:
    """Gives out bytearrays of any size; one per reader."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer of exactly this size, with any contents."""
        if not REUSED_BYTES_MIN <= size <= self._kept_bytes_max:
            return bytearray(size)
        for at in range(len(self._kept)):
            if fits(self._kept[at], size) and references(self._kept, at) == FREE:
                return resized(self._kept[at], size)
        return self._make(size)

    def _make(self, size: int) -> bytearray:
        buffer = bytearray(size)
        self._kept.append(buffer)
        while sum(map(room, self._kept)) > self._kept_bytes_max:  # Counted anew, since handlers may resize them.
            del self._kept[0]
        return buffer


def references(buffers: list[bytearray], at: int) -> int:
    """How many references there are, among them the list's and those of this very call."""
    return sys.getrefcount(buffers[at])


FREE = references([bytearray()], 0)
"""The count of a buffer that is in one list and nowhere else."""
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
