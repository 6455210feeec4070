"""Lists of different lengths as one tensor of an allowed length, and a mask that tells which elements are real.

The lists are written into one piece of memory, with their lengths behind them, which is copied to the device at once;
the mask is computed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from jitney.gpu.device import device as default_device
from jitney.gpu.device import find_torch
from jitney.gpu.shapes import current_shapes


class Padded(NamedTuple):
    """A batch of lists, one row each."""

    values: Any
    """What they hold, padded: whole numbers in a tensor of shape (items, length)."""
    mask: Any
    """Where there is something: truth values of the same shape."""


def pad(rows: Sequence[Sequence[int]], *, value: int = 0, device: Any = None) -> Padded:
    """Token ids as `torch` tensors on the worker's device: `ids, mask = jitney.pad(tokens)`.

    All rows get the length of the longest one, rounded up to the next of the decorator's `lengths` if there are any.
    Free elements hold `value`. A call of `jitney.graphs(model)` rounds the number of rows up, and drops them again.
    """
    torch = find_torch()
    if torch is None:
        raise ModuleNotFoundError("jitney.pad needs torch")
    place = torch.device(device if device is not None else default_device())
    count, longest = len(rows), max(map(len, rows), default=0)
    length = current_shapes().length_for(longest)
    whole = torch.empty(count * length + count, dtype=torch.int64, pin_memory=place.type == "cuda")
    fill(whole.numpy(), rows, length, value)
    # From pinned memory the copy does not wait for what the device is doing.
    there = whole.to(place, non_blocking=True)
    values, lengths = there[: count * length].view(count, length), there[count * length :]
    return Padded(values, torch.arange(length, device=place) < lengths[:, None])


def fill(whole: Any, rows: Sequence[Sequence[int]], length: int, value: int) -> None:
    """Writes rows, padded to a length, and behind them their lengths, into a numpy array."""
    import numpy

    count = len(rows)
    table, lengths = whole[: count * length].reshape(count, length), whole[count * length :]
    lengths[:] = numpy.fromiter(map(len, rows), dtype=whole.dtype, count=count)
    table[:] = value
    total = int(lengths.sum())
    given = numpy.fromiter(chain.from_iterable(rows), dtype=whole.dtype, count=total)
    table[numpy.arange(length) < lengths[:, None]] = given
