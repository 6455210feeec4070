"""The shapes that a function is run at: numbers of items, and their lengths where items are padded; and which of them a
batch is run at."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import NamedTuple

ITEMS_MAX = 256
"""Where only items times length are limited, sizes are chosen up to so many items."""
ITEMS_DEFAULT = 32
"""Where nothing is limited, outside a definition."""


class AllowedShapes(NamedTuple):
    """Numbers of items and lengths, ascending; none means any."""

    sizes: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    most: int | None = None
    """The most items of a call; with lengths, the most items times the longest of them. None: without limit."""

    def length_for(self, longest: int) -> int:
        """What items are padded to: the next length, or their own if none is long enough."""
        return next_size(self.lengths, longest) or longest

    def graph_sizes(self) -> tuple[int, ...]:
        """The sizes, or some that are chosen."""
        most = self.most or ITEMS_DEFAULT
        if self.most is not None and self.lengths:
            most = min(self.most // self.lengths[0], ITEMS_MAX)
        return self.sizes or tuple(allowed_sizes(max(1, most)))

    def all(self) -> list[tuple[int, int | None]]:
        """The pairs of size and length that calls come to, the largest first; the length is None without lengths."""
        sizes = self.graph_sizes()
        if not self.lengths:
            return [(size, None) for size in reversed(sizes)]
        pairs = [(size, length) for length in reversed(self.lengths) for size in reversed(sizes)]
        return [(size, length) for size, length in pairs if self.comes(size, length)]

    def comes(self, size: int, length: int) -> bool:
        """Whether some call is rounded up to this: the least one that is must not be more than a call may be."""
        least = (_below(self.graph_sizes(), size) + 1) * (_below(self.lengths, length) + 1)
        return self.most is None or least <= self.most


def _below(ascending: tuple[int, ...], one: int) -> int:
    """The next smaller one, or 0."""
    return max((other for other in ascending if other < one), default=0)


ANY_SHAPE = AllowedShapes()
_current: ContextVar[AllowedShapes] = ContextVar("shapes", default=ANY_SHAPE)


def use_shapes(shapes: AllowedShapes) -> None:
    """Makes these the shapes of what runs next in this thread or task."""
    _current.set(shapes)


def current_shapes() -> AllowedShapes:
    """The shapes of the endpoint that runs, or of the definition that is being set up."""
    return _current.get()


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
