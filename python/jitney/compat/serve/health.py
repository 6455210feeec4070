"""`check_health`: a replica that fails it three times in a row ends itself, and the server starts another one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

FAILURES_MAX = 3
UNHEALTHY = 70
"""The worker's exit status."""


class HealthCheck:
    """Calls `check_health` every period, on the replica's event loop where it has one."""

    def __init__(
        self, check: Callable[[], Any], period_s: float, timeout_s: float, end: Callable[[int], Any] = os._exit
    ) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._check, self._period_s, self._timeout_s, self._end = check, period_s, timeout_s, end
        self._failures = 0
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="check-health", daemon=True).start()

    def stop(self) -> None:
        """No more checks."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            self.once()

    def once(self) -> None:
        """One check."""
        try:
            self._call()
            self._failures = 0
        except Exception as error:
            self._failures += 1
            logger.warning("check_health failed %d times: %s: %s", self._failures, type(error).__name__, error)
        if self._failures >= FAILURES_MAX:
            logger.error("the replica is unhealthy and ends")
            self._end(UNHEALTHY)

    def _call(self) -> None:
        loop = self.loop
        if loop is not None and loop.is_running():
            future = asyncio.run_coroutine_threadsafe(self._settled(), loop)
            try:
                future.result(self._timeout_s)
            except concurrent.futures.TimeoutError:
                future.cancel()
                raise TimeoutError(f"no answer within {self._timeout_s} s") from None
            return
        asyncio.run(asyncio.wait_for(self._settled(), self._timeout_s))

    async def _settled(self) -> None:
        result = self._check()
        if inspect.isawaitable(result):
            await result
