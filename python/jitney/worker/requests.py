"""The requests of a batch as the items of a definition: what they carry is read when the model asks for it.

An item comes through a handle, in tensors, as parameters of HTTP or raw. What the server says about a raw request
stands in headers that no client can send. A request in tensors may bring several items and is answered
once, in tensors.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from jitney.call.errors import BadInput
from jitney.call.request import BULK, HTTP, INTERACTIVE, Facts, Request
from jitney.definition.definition import Definition, Endpoint
from jitney.execution.grouping import Item
from jitney.execution.splitting import STREAMED
from jitney.execution.tensor_answers import named
from jitney.execution.tensor_arguments import Arguments, TensorReader
from jitney.http import arguments
from jitney.http.request import HttpRequest
from jitney.torchserve import bodies
from jitney.torchserve.bodies import Raw, Reader
from jitney.wire.calls import CALL_PARAMETER
from jitney.worker.batch import Row, TensorRow, read_headers, read_pairs, read_request_id, read_text
from jitney.worker.protocol import CALL_FACTS, FIELD, ITEM_HEAD_SIZE, ITEM_META, NO_DEADLINE, Bytes, Malformed
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


METHOD_HEADER = "url_path"
"""Names the endpoint."""
METHOD_WORD = METHOD_HEADER.encode()
TENANT_HEADER = "x-jitney-tenant"
TENANT_WORD = b"-tenant"
TRACE_WORD = b"race"
"""What the meta of a request with a trace has in it, however the header is written."""
ORIGINS, PRIORITIES = (HTTP, "grpc", "python"), (INTERACTIVE, BULK)
"""By their numbers in the frames."""
OTHER_FORM = b"jitney other form"
"""The header by which the server asks for an answer in the other form than that of the arguments."""
BODY = "body"
METHOD, PATH, MOUNT, QUERY, CLIENT = "jitney method", "jitney path", "jitney mount", "jitney query", "jitney client"

UNSEEN = Request()
"""The request of an item whose endpoint does not ask for it, so that nobody can have set anything about its answer."""


def read_facts(meta: bytes, received: float) -> Facts:
    """Deadline, origin, tenant and priority of an item that came at the moment `received`."""
    left_ms, _, origin, priority = CALL_FACTS.unpack_from(meta, ITEM_META.size)
    # Headers are read only where one of them may be the tenant's.
    tenant = read_headers(meta).get(TENANT_HEADER) if TENANT_WORD in meta else None
    deadline = None if left_ms == NO_DEADLINE else received + left_ms / 1000
    try:
        return deadline, ORIGINS[origin], str(tenant) if tenant else None, PRIORITIES[priority]
    except IndexError:
        raise Malformed(f"no call has origin {origin} and priority {priority}") from None


def wants_value(row: Row, meta: bytes) -> bool:
    """Whether an item is answered with a value, as those that came through a handle. At the ends of a chain that a
    client of HTTP has called the server wants the other form than that of the arguments."""
    return (CALL_PARAMETER in row) != (OTHER_FORM in meta)


def read_batch_size(meta: bytes) -> int:
    """The largest batch of an item's endpoint; 0 where it is the definition's own."""
    size: int = CALL_FACTS.unpack_from(meta, ITEM_META.size)[1]
    return size


class WireRequest(Request):
    """A request whose id and headers stay unread until the model asks for them."""

    def __init__(self, meta: bytes, endpoint: str, received: float) -> None:
        self._meta = meta
        self.endpoint = endpoint
        self._received = received

    @property
    def id(self) -> str:
        return read_request_id(self._meta)

    @cached_property
    def headers(self) -> Any:
        return read_headers(self._meta)

    @property
    def facts(self) -> Facts:  # type: ignore[override]  # An attribute of the base, made lazy here.
        return read_facts(self._meta, self._received)

    @property
    def trace_headers(self) -> Mapping[str, Any]:
        return self.headers if TRACE_WORD in self._meta else {}


def reader_for(content_type: str) -> Reader:
    """How a value of this content type reaches a definition, which hears of broken JSON."""
    return _read_json if content_type == "application/json" else bodies.reader_for(content_type)


def _read_json(raw: Raw) -> Any:
    try:
        return bodies.parse_json(raw)
    except (ValueError, RecursionError) as error:
        return arguments.BrokenJson.of(raw, error)


class ItemReader:
    """Reads items; knows how to read the arguments of each endpoint."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._sole = definition.endpoints[0] if len(definition.endpoints) == 1 else None
        self._readers = {one.name: arguments.ArgumentReader(one) for one in definition.endpoints}
        self._tensors = {one.name: TensorReader(one) for one in definition.endpoints}
        self._asking = {one.name for one in definition.endpoints if any(param.is_request for param in one.params)}

    def open(self, row: Row, meta: bytes, received: float) -> tuple[Endpoint, Item | TensorItems]:
        """An item, or the items of a request in tensors, and the endpoint."""
        endpoint = self._sole or _choose(self._definition, meta)
        if endpoint.raw and CALL_PARAMETER not in row:
            raw = raw_request(row, meta, endpoint.name)
            raw.facts = read_facts(meta, received)
            return endpoint, Item({endpoint.params[0].name: raw}, raw)
        if isinstance(row, TensorRow):
            read = self._tensors[endpoint.name].read(row)
            return endpoint, TensorItems(endpoint, row, read, WireRequest(meta, endpoint.name, received))
        if CALL_PARAMETER in row:
            named = self._readers[endpoint.name].read_call(row[CALL_PARAMETER])
        else:
            named = self._readers[endpoint.name].read(row)
        request = WireRequest(meta, endpoint.name, received) if endpoint.name in self._asking else UNSEEN
        return endpoint, Item(named, request)


def _choose(definition: Definition, meta: bytes) -> Endpoint:
    # Headers are read only where one of them may name the endpoint.
    name = _named_endpoint(meta) if METHOD_WORD in meta else ""
    try:
        return definition.endpoint(name)
    except LookupError as error:
        raise BadInput(str(error), status=404) from None


def _named_endpoint(meta: bytes) -> str:
    """The endpoint that a meta names. Nearly always the last such word in it is the name of the header, and its value
    is cut out; all headers are read where it is not."""
    id_len, _, _, headers_len = ITEM_META.unpack_from(meta)
    begin = ITEM_HEAD_SIZE + id_len
    at = meta.rfind(METHOD_WORD, begin + FIELD.size, begin + headers_len)
    if at > 0:
        name_len, value_len = FIELD.unpack_from(meta, at - FIELD.size)
        value_at = at + name_len
        if name_len == len(METHOD_WORD) and value_at + value_len <= begin + headers_len:
            return read_text(meta[value_at : value_at + value_len])
    return str(read_headers(meta).get(METHOD_HEADER, ""))


def raw_request(row: Row, meta: bytes, endpoint: str) -> HttpRequest:
    """The request of an item."""
    pairs = read_pairs(meta)
    told = dict(pair for pair in pairs if " " in pair[0])
    if METHOD not in told and "/" in endpoint and not isinstance(row, TensorRow):
        return _request_by_path(row, meta, pairs, endpoint)
    if METHOD not in told or isinstance(row, TensorRow):
        raise BadInput(f"{endpoint} takes requests as they came: call it by the path where it is mounted", status=404)
    raw_path, root_path = told[PATH], told[MOUNT]
    whole = urllib.parse.unquote(raw_path)
    request = HttpRequest(
        told[METHOD],
        whole[len(root_path) :] or "/",
        query_string=told[QUERY],
        headers=(pair for pair in pairs if " " not in pair[0] and pair[0] != METHOD_HEADER),
        body=row.get(BODY, b""),
        root_path=root_path,
        client=_client(told.get(CLIENT, "")),
        id=read_request_id(meta),
        endpoint=endpoint,
    )
    request.raw_path = raw_path
    return request


def _request_by_path(row: Row, meta: bytes, pairs: list[tuple[str, str]], endpoint: str) -> HttpRequest:
    """The request of an item that came as a prediction for an endpoint whose name is a path, as TorchServe's clients
    write it: `/predictions/NAME/VERSION/v1/completions`."""
    body = row.get(BODY, row.get("data", b""))
    if not isinstance(body, (bytes, bytearray, memoryview)):
        body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kept = (pair for pair in pairs if pair[0] not in (METHOD_HEADER, "content-length"))
    method = "POST" if body else "GET"
    return HttpRequest(method, headers=kept, body=body, id=read_request_id(meta), endpoint=endpoint)


def _client(address: str) -> tuple[str, int] | None:
    host, _, port = address.lstrip("/").rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None
