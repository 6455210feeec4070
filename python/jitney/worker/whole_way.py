"""Made-up batches that go the whole way of a request before the worker says that it is loaded.

What happens only once then happens here and not in a user's first request: threads are started, memory is taken,
libraries load their kernels, modules are imported. The answers are encoded and thrown away, and no metric counts them.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence

from jitney.torchserve.metrics import muted
from jitney.worker.batch import Row
from jitney.worker.context import BoundBatch
from jitney.worker.intake import HeldBatch
from jitney.worker.loader import LoadedModel
from jitney.worker.protocol import CALL_FACTS, ITEM_META, NO_DEADLINE
from jitney.worker.run import answer_from
from jitney.worker.step_times import now

logger = logging.getLogger(__name__)

ID = b"jitney-warm-up"
META = ITEM_META.pack(len(ID), 0, 0, 0) + CALL_FACTS.pack(NO_DEADLINE, 0, 0, 0) + ID
"""What a request without headers and parameters brings."""
SECONDS_MAX = 2.0
"""No batches are begun that would probably take longer."""

Run = Callable[[Sequence[HeldBatch]], None]
"""Runs batches as if they had come at the same time; raises if one fails."""


def go_the_whole_way(model: LoadedModel, run: Run, slots: int) -> None:
    """Runs the model's samples: each alone, then as many at a time as the worker may hold. A failure is a line in the
    log and no more."""
    item_seconds = 0.0
    with muted():
        for at_a_time in sorted({1, slots}):
            for rows in model.samples:
                items = at_a_time * len(rows)
                if items * item_seconds > SECONDS_MAX:
                    continue
                began = now()
                try:
                    run([made_up(rows) for _ in range(at_a_time)])
                except Exception as error:
                    logger.info("A made-up batch of %d failed, so the first requests are slower: %s", len(rows), error)
                    return
                finally:
                    model.context.show(BoundBatch(), to_all=True)
                item_seconds = (now() - began) / items


def made_up(rows: Sequence[Row]) -> HeldBatch:
    """A batch of these rows, which nobody sent. Handlers may change their rows."""
    bound = BoundBatch([META] * len(rows))
    return HeldBatch([copy.deepcopy(row) for row in rows], bound, now(), made_up=True)


def run_one_by_one(model: LoadedModel) -> Run:
    """For a worker that takes one batch at a time."""

    def run(batches: Sequence[HeldBatch]) -> None:
        for held in batches:
            model.context.show(held.bound, to_all=True)
            answer_from(model.entry_point(held.work, model.context), held.count, model.context)

    return run
