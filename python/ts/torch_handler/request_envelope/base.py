"""What all envelopes share: unwrap the batch, call the handler, wrap its results.

An envelope subclasses `BaseEnvelope` with `parse_input` and `format_output`. It may keep what it learns about a
batch on itself between the two: every batch gets an envelope of its own, so batches that are worked on at the
same time (asynchronous handlers) never meet there.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

Rows = list[Any]


class BaseEnvelope(ABC):
    """Wraps a handler's entry point."""

    def __init__(self, handle_fn: Callable[[Any, Any], Any]) -> None:
        self._handle_fn = handle_fn
        self.context: Any = None

    def handle(self, data: Rows, context: Any) -> Any:
        """Answers one batch; what the handler returns may be awaitable, and then so is this."""
        envelope = copy.copy(self)
        envelope.context = context
        return envelope._answer(data)

    def _answer(self, data: Rows) -> Any:
        if not any(data):  # A request without any value asks the handler to describe itself.
            return self._handle_fn(data, self.context)
        rows = self.parse_input(data)
        results = self._handle_fn(rows, self.context) if rows else []
        return self._later(results) if inspect.isawaitable(results) else self._wrap(results)

    async def _later(self, results: Awaitable[Any]) -> Any:
        return self._wrap(await results)

    def _wrap(self, results: Any) -> Any:
        return results if results is None else self.format_output(results)

    @abstractmethod
    def parse_input(self, data: Rows) -> Rows:
        """From the batch's requests to the rows the handler is called with."""

    @abstractmethod
    def format_output(self, data: Any) -> Rows:
        """From the handler's results to one answer per request."""
