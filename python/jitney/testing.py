"""Unit tests of a definition: explicit batches, no server, no clock, no threads.

    with jitney.testing.load(adder) as model:
        assert model.batch([{"number": 1}, {"number": 2}]) == [2, 3]
        assert model.sizes == [2]

An item that fails has its exception in the list, as its caller would get it. The parts of an application run in the
same process; `model.parts` has them by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from jitney.call.errors import BadInput
from jitney.call.request import Request
from jitney.definition.application import graph
from jitney.definition.construction import Resolve
from jitney.definition.definition import Definition, Endpoint
from jitney.execution.execution import Instance
from jitney.execution.grouping import Item
from jitney.execution.splitting import STREAMED
from jitney.http import arguments
from jitney.http.answer import Answer, answer_of, failed
from jitney.http.response import TEXT, Response, encode


class Model:
    """A definition under test."""

    def __init__(self, target: Any, models: Mapping[str, Any] | None = None) -> None:
        application = graph(target)
        self.definition: Definition = application.root.definition
        self._local: Any = None
        resolve: Resolve | None = None
        if application.root.links:
            from jitney.check.local_parts import LocalParts

            self._local = LocalParts(application, _Counting, models)
            resolve = self._local.resolver(application.root)
        self._instance = _Counting(self.definition, resolve)

    @property
    def parts(self) -> dict[str, _Counting]:
        """The other parts of an application; `sizes` of each says how its function was called."""
        return {} if self._local is None else self._local.instances

    @property
    def sizes(self) -> list[int]:
        """How many items each call of the function had, in order."""
        return self._instance.sizes

    def batch(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        endpoint: str = "",
        requests: Sequence[Request] | None = None,
    ) -> list[Any]:
        """Runs the items as one batch of the server's; one output or exception per item."""
        one = self.definition.endpoint(endpoint)
        outcomes = [_read(one, named) for named in items]
        made = {at: item for at, item in enumerate(outcomes) if isinstance(item, Item)}
        for at, request in enumerate(requests or ()):
            if at in made:
                made[at].request = request
        if made:
            for at, outcome in zip(made, self._run(one, list(made.values()))):
                outcomes[at] = outcome
        return outcomes

    def call(self, *, endpoint: str = "", **named: Any) -> Any:
        """Runs one item alone; what it fails with is raised."""
        outcome = self.batch([named], endpoint=endpoint)[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def stream(self, items: Iterable[Mapping[str, Any]], *, endpoint: str = "") -> list[list[Any]]:
        """The pieces each item got, in order; an exception is the last one of those it ended."""
        one = self.definition.endpoint(endpoint)
        made = [Item(arguments.read(one, dict(named))) for named in items]
        pieces: list[list[Any]] = [[] for _ in made]
        outcomes = self._run(one, made, lambda position, piece: pieces[position].append(piece))
        for got, outcome in zip(pieces, outcomes):
            if isinstance(outcome, BaseException):
                got.append(outcome)
        return pieces

    def post(self, body: Any = b"", *, endpoint: str = "", accept: str = "", **query: str) -> Answer:
        """One request as HTTP would bring it: JSON values as they are, bytes as a body of bytes."""
        one = self.definition.endpoint(endpoint)
        row = {**{name: bytearray(value.encode()) for name, value in query.items()}, "body": body}
        request, pieces = Request(endpoint=one.name), []
        try:
            item = Item(arguments.read(one, row), request)
            outcome = self._run(one, [item], lambda _, piece: pieces.append(piece))[0]
        except Exception as error:
            outcome = error
        if isinstance(outcome, BaseException):
            return failed(outcome)
        if outcome is STREAMED:
            head = pieces.pop(0) if pieces and isinstance(pieces[0], Response) else Response()
            kinds, bodies = zip(*map(encode, pieces)) if pieces else ((TEXT,), ())
            return Answer.of(Response(b"".join(bodies), head.status, head.headers, head.media_type), kinds[0])
        return answer_of(outcome, request, accept)

    def _run(self, endpoint: Endpoint, items: list[Item], emit: Any = None) -> list[Any]:
        return self._instance.call(endpoint, items, emit)

    def close(self) -> None:
        """Ends it; `teardown` is called."""
        self._instance.close()
        if self._local is not None:
            self._local.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Counting(Instance):
    """An instance that notes how its functions are called."""

    def __init__(self, definition: Definition, resolve: Resolve | None = None) -> None:
        self.sizes: list[int] = []
        super().__init__(definition, resolve)

    def function(self, endpoint: Endpoint) -> Any:
        function = super().function(endpoint)

        def counted(**arguments: Any) -> Any:
            self.sizes.append(_size(endpoint, arguments))
            return function(**arguments)

        return counted


def _read(endpoint: Endpoint, named: Mapping[str, Any]) -> Item | BadInput:
    """One item as the server makes it of a handle's call."""
    try:
        return Item(arguments.read(endpoint, dict(named)))
    except BadInput as error:
        return error


def _size(endpoint: Endpoint, arguments: Mapping[str, Any]) -> int:
    """Items of a call: the length of its lists, or the rows of its arrays."""
    if not endpoint.batched:
        return 1
    lists = [value for value in arguments.values() if isinstance(value, list)]
    if lists:
        return len(lists[0])
    first = next(iter(arguments.values()))
    dim = endpoint.options.dims[0]
    return int(first.shape[dim]) if hasattr(first, "shape") else len(first)


def load(target: Any, *, models: Mapping[str, Any] | None = None) -> Model:
    """Loads a definition, or an application with its parts, for a test. `models` are definitions that stand for models
    of the server which it names."""
    return Model(target, models)
