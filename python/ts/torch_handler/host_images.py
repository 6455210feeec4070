"""Makes a batch in the memory of the host: each thread reads an image and puts its numbers where they belong.

So the arithmetic of `ToTensor` and `Normalize` is done side by side too, on memory that the thread's processor still
has at hand; done for the whole batch at once it keeps one processor busy for as long as several threads decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ts.torch_handler.framing import Framing
from ts.torch_handler.images import Recipe, pixels, plain_rgb, torch
from ts.torch_handler.threads import ItemPool

WRITTEN = object()
"""In place of an item that is in the batch already."""


class HostBatch:
    """The batch of one transform that makes images of one size."""

    def __init__(self, recipe: Recipe, framing: Framing, rows: Sequence[Any]) -> None:
        self.recipe = recipe
        self.rows = rows
        self.size = (framing.width, framing.height)
        self.numbers = torch.empty((len(rows), 3, framing.height, framing.width))
        self.mean, self.deviation = recipe.statistics(self.numbers.dtype, self.numbers.device)

    def read(self, pool: ItemPool) -> list[Any]:
        """One item per row: WRITTEN, or what could not be put into the batch: an exception, or numbers as they came."""
        return pool.map(self._read, range(len(self.rows)))

    def _read(self, place: int) -> Any:
        item = self.recipe.read(self.rows[place])
        if not plain_rgb(item) or item.size != self.size:
            return item
        levels = pixels(item).permute(2, 0, 1)
        self.numbers[place].copy_(levels).div_(255).sub_(self.mean).div_(self.deviation)
        return WRITTEN

    def of(self, items: Sequence[Any], good: Sequence[int]) -> Any:
        """The batch of the items at these places."""
        if any(items[place] is not WRITTEN for place in good):
            found = [self.numbers[place] if items[place] is WRITTEN else items[place] for place in good]
            return self.recipe.stack(found, self.numbers.device)
        return self.numbers if len(good) == len(items) else self.numbers[list(good)]
