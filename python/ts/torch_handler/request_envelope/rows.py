"""Requests of a batch as JSON, and the handler's results shared out among them.

KServe's requests bring several rows each. The handler sees the rows of all requests of the batch as one list,
and its results are cut apart again; TorchServe's own KServe envelopes forget all requests but the first.
"""

from __future__ import annotations

import json
from typing import Any

from ts.torch_handler.rows import value_of
from ts.utils.util import PredictionException

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
