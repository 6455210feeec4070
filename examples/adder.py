"""The vectorised adder: whoever comes while a batch runs shares the next one, four at most.

Nine calls at once run as batches of 1, 4 and 4: the first finds the worker free and leaves alone.
"""

from __future__ import annotations

import os
import time

import jitney

SECONDS = float(os.environ.get("ADDER_SECONDS", "0.2"))
"""What a batch costs, however many are in it."""


@jitney.batch(max_batch_size=4, policy="opportunistic", examples=[{"number": n} for n in range(5)])
def adder(number: list[int]) -> list[int]:
    """Adds one to a number."""
    print(f"a batch of {len(number)}")
    time.sleep(SECONDS)
    return [one + 1 for one in number]
