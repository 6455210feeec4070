"""What the code of a batch can ask: it belongs to all of its calls, and to no single one.

Calls that it makes to other deployments have what these have in common, as in a batch of Jitney's own: the latest
deadline, the tenant if all have the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitney.call.context import CURRENT, CallContext
from jitney.call.request import Request
from jitney.compat.serve.batch_items import BatchItem
from jitney.compat.serve.context import ServeRequestContext, enter_request


class BatchSource:
    """The requests of a batch's calls."""

    reserves = None

    def __init__(self, model: str, requests: Sequence[Request]) -> None:
        self.model = model
        self._requests = requests

    def request_at(self, position: int) -> Request:
        """The request of one call."""
        return self._requests[position]


def enter_batch(batch: Sequence[BatchItem]) -> None:
    """The calling code runs for this batch from now on."""
    enter_request(ServeRequestContext(multiplexed_model_id=batch[0].model_id))
    calls = [item.call for item in batch if item.call is not None]
    if calls and len(calls) == len(batch):
        source = BatchSource(calls[0].model, [call.request for call in calls])
        CURRENT.set(CallContext(source, calls[0].endpoint, True, range(len(calls))))
