"""The vectorised adder: calls that arrive while a batch runs share the next one, four at most.

Nine calls at once run as batches of 1, 4 and 4: the first finds an idle worker and is dispatched alone.
"""

from __future__ import annotations

import os
import time

import jitney

SECONDS = float(os.environ.get("ADDER_SECONDS", "0.2"))
"""The time of a batch, whatever its size."""


@jitney.batch(max_batch_size=4, policy="opportunistic", examples=[{"number": n} for n in range(5)])
def adder(number: list[int]) -> list[int]:
    """Adds one to a number."""
    print(f"a batch of {len(number)}")
    time.sleep(SECONDS)
    return [one + 1 for one in number]
