"""What all envelopes share: unwrap the batch, call the handler, wrap its results.

An envelope subclasses `BaseEnvelope` with `parse_input` and `format_output`. It may keep what it learns about a
batch on itself between the two: every batch gets an envelope of its own, so batches that are worked on at the
same time (asynchronous handlers) never meet there.

KServe's requests bring several rows each. The handler sees the rows of all requests of the batch as one list,
and its results are cut apart again; TorchServe's own KServe envelopes forget all requests but the first.
"""

from __future__ import annotations

import copy
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from ts.torch_handler.rows import value_of
from ts.utils.util import PredictionException

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


BAD_REQUEST = 400


def bad_request(message: str) -> PredictionException:
    """What to raise about a request that is not what the envelope takes."""
    return PredictionException(message, BAD_REQUEST)


def document_of(row: dict[str, Any], key: str) -> dict[str, Any]:
    """The request's JSON object, which must have a list under `key`."""
    value = row if key in row else value_of(row)  # The fields of a JSON object may already be those of the row.
    if isinstance(value, (bytes, bytearray, str)):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise bad_request(f"The request body is not valid JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get(key), list):
        raise bad_request(f'The request body must be a JSON object with a list "{key}".')
    return value


def instances_of(data: list[Any]) -> tuple[list[Any], list[int]]:
    """The instances of all requests, one after the other, and how many each request has."""
    lists = [document_of(row, "instances")["instances"] for row in data]
    return [instance for some in lists for instance in some], [len(some) for some in lists]


def share_out(results: Any, counts: list[int]) -> list[Any]:
    """The results of each request, given how many rows it brought. A lone request gets whatever there is."""
    if len(counts) == 1:
        return [results]
    if not isinstance(results, (list, tuple)) or len(results) != sum(counts):
        found = len(results) if isinstance(results, (list, tuple)) else type(results).__name__
        raise ValueError(f"the handler was given {sum(counts)} rows of {len(counts)} requests and returned {found}")
    shares, at = [], 0
    for count in counts:
        shares.append(list(results[at : at + count]))
        at += count
    return shares


def plain(value: Any) -> Any:
    """Tensors and arrays as lists; all else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def plain_or_error(value: Any) -> Any:
    """`plain` for `json.dumps`, which asks about what it does not know."""
    listed = plain(value)
    if listed is value:
        raise TypeError(f"a result of type {type(value).__name__} has no JSON form")
    return listed
