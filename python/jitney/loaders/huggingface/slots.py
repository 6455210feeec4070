"""Keys and values of texts that are being written, one slot for each text. New tokens are written into their place, so
that texts of any length share a step and nothing is moved when one joins. Live texts have the first slots."""

from __future__ import annotations

from typing import Any

from jitney.gpu.device import find_torch


class StepColumns:
    """Where the tokens of a step are; all layers share one."""

    def __init__(self) -> None:
        self.rows: Any = None
        """The slot of each row."""
        self.columns: Any = None
        """The column of each token, by row."""
        self.until: int | None = None
        """Attention sees the columns before this; None where a row's own tokens are all that there is."""
        self.first = 0
        """The slot of the first row that it sees."""


class SlotLayer:
    """The slots of one layer."""

    def __init__(self, place: StepColumns, slots: int, length: int) -> None:
        self.place, self.slots, self.length = place, slots, length
        self.keys: Any = None
        self.values: Any = None

    def update(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Writes the tokens of a step down; returns what its attention sees."""
        if self.keys is None:
            self.keys, self.values = self._made(keys), self._made(values)
        place = self.place
        rows = place.rows[:, None]
        self.keys[rows, :, place.columns] = keys.transpose(1, 2)
        self.values[rows, :, place.columns] = values.transpose(1, 2)
        if place.until is None:
            return keys, values
        seen = slice(place.first, place.first + keys.shape[0])
        return self.keys[seen, :, : place.until], self.values[seen, :, : place.until]

    def _made(self, states: Any) -> Any:
        _, heads, _, width = states.shape
        return find_torch().zeros(self.slots, heads, self.length, width, dtype=states.dtype, device=states.device)

    def move(self, source: int, target: int, length: int) -> None:
        """Copies a text to another slot."""
        for states in (self.keys, self.values):
            states[target, :, :length] = states[source, :, :length]


class SlotCache:
    """All layers, in the form in which the models of `transformers` ask for what they keep."""

    is_compileable = False

    def __init__(self, layers: int, slots: int, length: int) -> None:
        self.place = StepColumns()
        self.layers = [SlotLayer(self.place, slots, length) for _ in range(layers)]
        self.is_sliding = [False] * layers

    def update(self, keys: Any, values: Any, layer_idx: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Called by the attention of each layer."""
        return self.layers[layer_idx].update(keys, values)

    def move(self, source: int, target: int, length: int) -> None:
        """Copies a text to another slot."""
        for layer in self.layers:
            layer.move(source, target, length)

    def get_seq_length(self, *_: Any) -> int:
        """Positions are always given, so that it does not matter."""
        return 0

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        """Masks are always given, so that it does not matter."""
        return self.place.until or query_length, 0
