"""The batch sizes a model may run at, and which of them a batch is run at."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

DOUBLING_UP_TO = 64
"""Below, the next size is twice the last; above there is one more in between, since padding costs more there."""
SIZES_MAX = 64
"""So many sizes are used at most: each holds a graph."""


def allowed_sizes(largest: int) -> list[int]:
    """1, 2, 4, ..., 64, 96, 128, 192, 256, ... below the largest batch, and the largest batch itself."""
    sizes = []
    size = 1
    while size < largest:
        sizes.append(size)
        between = size * 3 // 2
        if size >= DOUBLING_UP_TO and between < largest:
            sizes.append(between)
        size *= 2
    return [*sizes, max(1, largest)]


def compiled_sizes(largest: int) -> list[int]:
    """1, 4, 16, 64, 128, 256, ...: fewer, since a compiled size takes half a minute the first time."""
    powers = [size for size in allowed_sizes(largest) if size & (size - 1) == 0]
    return sorted({size for size in powers if size >= DOUBLING_UP_TO or size.bit_length() % 2} | {max(1, largest)})


def in_order(sizes: Iterable[int], largest: int | None = None) -> list[int]:
    """Sizes as an operator gave them, ascending and each once; up to the largest batch, which is among them."""
    ordered = sorted({int(size) for size in sizes if int(size) >= 1})
    if largest is not None:
        ordered = [*(size for size in ordered if size < largest), next_size(ordered, largest) or largest]
    return ordered[-SIZES_MAX:]


def next_size(sizes: Sequence[int], count: int) -> int | None:
    """The smallest of the ascending sizes that holds `count`, or None if none does."""
    found = bisect_left(sizes, count)
    return sizes[found] if found < len(sizes) else None
