"""Who waits for whom in a worker whose class has endpoints of two kinds.

Batches that the server plans run one after another, as it expects. Calls of `async` endpoints that take one item at a
time need no turn: the server is told so, takes the worker for free, and the call goes on beside the others. Of each
such endpoint no more run than its `concurrency` says; a further one keeps the worker, which holds the server back.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from jitney.definition.definition import Definition
from jitney.worker.batch import read_headers

if TYPE_CHECKING:
    import asyncio


class Turns:
    """The turns of one worker."""

    def __init__(self, definition: Definition, header: str) -> None:
        self._definition = definition
        self._header = header
        import asyncio

        self._planned = asyncio.Lock()
        self._beside = {one.name: asyncio.Semaphore(one.concurrency) for one in definition.endpoints if one.runs_beside}

    @contextlib.asynccontextmanager
    async def of(self, metas: Sequence[bytes] | None) -> AsyncIterator[bool]:
        """Waits for the turn of a batch; whether it runs beside others."""
        beside = self._semaphore(metas)
        async with beside or self._planned:
            yield beside is not None

    def _semaphore(self, metas: Sequence[bytes] | None) -> asyncio.Semaphore | None:
        """A batch has requests of one endpoint."""
        if not metas:
            return None
        try:
            endpoint = self._definition.endpoint(str(read_headers(metas[0]).get(self._header, "")))
        except LookupError:
            return None
        return self._beside.get(endpoint.name)
