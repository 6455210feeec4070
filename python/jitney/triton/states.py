"""State tensors of sequences: an output of one request is an input of the next one of the same sequence. Clients see
neither. The first request of a sequence gets zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jitney.triton import types
from jitney.triton.messages import BackendTensor, InferenceResponse

SEQUENCES = 1024
"""How many sequences the server allows at a time, unless more are declared."""


class SequenceStates:
    """What each sequence left."""

    def __init__(self, batching: Mapping[str, Any], batched: bool) -> None:
        self._declared = list(batching.get("state", ()))
        self._max = max(SEQUENCES, batching.get("oldest", {}).get("max_candidate_sequences", 0))
        self._batched = batched
        self._kept: dict[str, dict[str, BackendTensor]] = {}
        """The one that was silent for longest comes first."""

    def inputs(self, sequence: Any, starts: bool, row: Mapping[str, Any]) -> list[BackendTensor]:
        """The inputs that a request gets beside its own."""
        if not self._declared:
            return []
        left = {} if starts else self._kept.get(str(sequence), {})
        rows = [next(iter(row.values())).shape[0]] if self._batched else []
        made = []
        for one in self._declared:
            kept = left.get(one["output_name"])
            array = zeros(one, rows) if kept is None else kept.raw
            made.append(BackendTensor(one["input_name"], array))
        return made

    def keep(self, sequence: Any, ends: bool, response: InferenceResponse) -> None:
        """Takes the state out of a response and keeps it for the next request."""
        if not self._declared:
            return
        key, tensors = str(sequence), response.output_tensors()
        self._kept.pop(key, None)
        names = {one["output_name"] for one in self._declared}
        if not ends:
            self._kept[key] = {one.name(): one for one in tensors if one.name() in names}
        tensors[:] = [one for one in tensors if one.name() not in names]
        if len(self._kept) > self._max:
            del self._kept[next(iter(self._kept))]


def zeros(state: Mapping[str, Any], rows: list[int]) -> Any:
    """The state of a sequence that begins; an open size is 1."""
    import numpy

    datatype = types.numpy_type(types.from_config(state["data_type"]))
    shape = [*rows, *(max(size, 1) if size < 0 else size for size in state.get("dims", ()))]
    return numpy.full(shape, b"", datatype) if datatype is numpy.object_ else numpy.zeros(shape, datatype)
