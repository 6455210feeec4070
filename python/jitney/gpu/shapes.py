"""The shapes that a function is run at: numbers of items, and their lengths where items are padded."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from jitney.gpu.sizes import allowed_sizes, next_size

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
