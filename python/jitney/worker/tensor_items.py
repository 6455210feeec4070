"""A request in tensors, which may bring several items and is answered once, in tensors."""

from __future__ import annotations

from typing import Any

from jitney.call.request import Request
from jitney.definition.definition import Endpoint
from jitney.execution.grouping import Item
from jitney.execution.streaming import STREAMED
from jitney.execution.tensor_answers import named
from jitney.execution.tensor_arguments import Arguments
from jitney.worker.batch import TensorRow
from jitney.worker.protocol import Bytes
from jitney.worker.writer import encode_tensors


class TensorItems:
    """A request's items while they are being worked on."""

    def __init__(
        self, endpoint: Endpoint, row: TensorRow, read: tuple[list[Arguments], bool], request: Request
    ) -> None:
        arguments, self._together = read
        self._endpoint = endpoint
        self._asked = row.outputs
        self.request = request
        self.items = [Item(one, request, len(arguments) > 1) for one in arguments]
        self._outcomes: list[Any] = []
        self._pieces: dict[int, list[Any]] = {}

    def take(self, outcome: Any) -> None:
        """Keeps what became of the next item."""
        if outcome is STREAMED:
            outcome = _whole(self._pieces.get(len(self._outcomes), []))
        self._outcomes.append(outcome)

    def add_piece(self, item: int, piece: Any) -> None:
        """Keeps a piece of a stream, which is answered as a whole."""
        self._pieces.setdefault(item, []).append(piece)

    def fail(self, error: Exception) -> None:
        """The call failed, and no other request was in it."""
        self._outcomes = [error]

    def encode(self) -> tuple[bytes, list[Bytes]]:
        """Meta and parts of the body of the answer; an error that any of the items met is raised."""
        for outcome in self._outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        value = self._outcomes if self._together else self._outcomes[0]
        columns = self._endpoint.shape.gives_columns
        answer = named(self._endpoint.tensors, columns, value, self._together, self._asked)
        meta = encode_tensors(self.request.status or 200, self.request.response_headers, answer)
        return meta, [tensor.data for _, tensor in answer]


def _whole(pieces: list[Any]) -> Any:
    """The answer of which these are the pieces."""
    texts = all(isinstance(piece, str) for piece in pieces)
    return "".join(pieces) if texts else pieces
