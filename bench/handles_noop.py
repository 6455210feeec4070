"""The model of bench/handles.py: a batched function that does nothing."""

from __future__ import annotations

import jitney


@jitney.batch(max_batch_size=100, policy="opportunistic", queue=2000)
def noop(number: list[int]) -> list[int]:
    """Gives back what it got."""
    return number
