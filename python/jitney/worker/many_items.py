"""Requests that bring several items at a time: tensors, and lists of instances. Each is answered once."""

from __future__ import annotations

from typing import Any

from jitney.definition import Endpoint
from jitney.grouping import Item
from jitney.http.answers import JSON, encode_json
from jitney.request import Request
from jitney.streaming import STREAMED
from jitney.tensor_answers import named
from jitney.tensor_arguments import Arguments
from jitney.worker.items import encode_fields, encode_tensors
from jitney.worker.protocol import Bytes


class ManyItems:
    """A request's items while they are being worked on."""

    def __init__(self, endpoint: Endpoint, arguments: list[Arguments], together: bool, request: Request) -> None:
        self._endpoint = endpoint
        self._together = together
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

    def value(self) -> Any:
        """The answer of the item, or of all; an error that any of them met is raised."""
        for outcome in self._outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return self._outcomes if self._together else self._outcomes[0]

    def encode(self) -> tuple[bytes, list[Bytes]]:
        """Meta and parts of the body of the request's answer."""
        raise NotImplementedError


class TensorItems(ManyItems):
    """A request in tensors, which is answered in tensors."""

    asked: list[str]
    """The outputs that it asks for."""

    def encode(self) -> tuple[bytes, list[Bytes]]:
        shape = self._endpoint.shape
        answer = named(self._endpoint.tensors, shape.gives_columns, self.value(), self._together, self.asked)
        meta = encode_tensors(self.request.status or 200, self.request.response_headers, answer)
        return meta, [tensor.data for _, tensor in answer]


class Instances(ManyItems):
    """A list of instances, which is answered with a JSON list."""

    def encode(self) -> tuple[bytes, list[Bytes]]:
        headers = {"Content-Type": JSON, **self.request.response_headers}
        return encode_fields(self.request.status or 200, "", headers), [encode_json(self.value())]


def _whole(pieces: list[Any]) -> Any:
    """The answer of which these are the pieces."""
    texts = all(isinstance(piece, str) for piece in pieces)
    return "".join(pieces) if texts else pieces
