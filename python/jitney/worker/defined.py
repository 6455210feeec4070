"""The worker's side of a definition: items in, calls, answers out.

It stands where a TorchServe handler would, and answers with ready-made items, since a definition
can fail one item, choose content types and stream, which a handler's plain list cannot express. `requests` reads the
items of a batch and `answers` writes what became of them; here they are arranged into calls and run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jitney.call.context import CallContext, Reserves
from jitney.call.errors import ItemErrors
from jitney.call.request import Request
from jitney.definition.application import Part, graph
from jitney.definition.construction import Resolve
from jitney.definition.definition import Definition, Endpoint
from jitney.definition.locate import locate
from jitney.execution.execution import Execution, Instance
from jitney.execution.grouping import Item, complete
from jitney.execution.warm_up import Progress, warm_up
from jitney.gpu.device import choose_device, loaded_torch
from jitney.gpu.fetching import fetched, start_fetching
from jitney.gpu.report import WarmUpReport
from jitney.http.response import Response, stream_of
from jitney.loaders.registry import open_again
from jitney.values import array_formats
from jitney.worker.answers import AnswerEncoder
from jitney.worker.batch import Row
from jitney.worker.context import WorkerContext
from jitney.worker.protocol import POSITION, Bytes, calls_greeting
from jitney.worker.reply import EncodedReply
from jitney.worker.requests import (
    METHOD_HEADER,
    UNSEEN,
    ItemReader,
    TensorItems,
    WireRequest,
    read_batch_size,
    wants_value,
)
from jitney.worker.turns import Turns
from jitney.worker.writer import LENGTHS, assemble, assemble_all, assemble_parts

if TYPE_CHECKING:
    import asyncio

OVERLAP = 3
"""Batches that a worker holds where they overlap: one is read, one runs, one is written."""
SECTION = "jitney"
_NPY = array_formats.NPY_TYPE.encode()
NO_CALLS: set[int] = set()
"""No item of a batch is answered with a value."""


class WorkerFacts:
    """What a worker knows of itself, for definitions whose class has `__jitney_worker__`."""

    def __init__(self, name: str, spec: dict[str, Any]) -> None:
        self.name = name
        self.version = str(((spec.get("manifest") or {}).get("model") or {}).get("modelVersion", ""))
        self.served_as = str(spec.get("model_name", name))
        self.model_dir = str(spec.get("model_dir", ""))
        self.settings: dict[str, Any] = spec.get("model_yaml_config") or {}
        """Those of the model, whole."""
        self._calls = spec.get("calls")

    @cached_property
    def connections(self) -> Any:
        """What calls to other models go over. Models that make none never load what calls need."""
        if not self._calls:
            raise RuntimeError("this server takes no calls from its workers, and the definition depends on others")
        from jitney.handle.part import calling

        return calling(self._calls["socket"], calls_greeting(self._calls["token"]))

    def model(self, name: str) -> Any:
        """The handle of any model of the server, in its default version."""
        from jitney.handle.part import PartHandle

        return PartHandle(self.connections, name, "")


def resolver(part: Part, facts: WorkerFacts) -> Resolve | None:
    """What stands for the parts that this one calls."""
    if not part.links:
        return None
    from jitney.handle.part import part_handles

    return part_handles(part, facts.version, facts.connections)


class DefinedModel:
    """What a worker that runs a definition calls: `handle`, or its three steps side by side."""

    def __init__(self, definition: Definition, debug_errors: bool = False, resolve: Resolve | None = None) -> None:
        self._debug_errors = debug_errors
        self.definition = definition
        self.name = definition.name
        """The name that it is served under."""
        self.reserves = Reserves()
        self.instance = Instance(self.definition, resolve)
        self.awaits_others = resolve is not None and all(one.is_async for one in definition.endpoints)
        """Whether its batches run on a loop, also if it takes one at a time, so that the server can cancel them."""
        self._concurrent = self.awaits_others or self.definition.concurrency > 1
        single = not any(one.batched or one.raw or one.streams or not one.is_async for one in definition.endpoints)
        self.answer_lone = self._answer_lone if single and self._concurrent else None
        """Where every endpoint is a coroutine that takes one item and gives its answer: what answers one."""
        self._reader = ItemReader(self.definition)
        self._sizes = _Sizes()

    @classmethod
    def load(cls, spec: dict[str, Any]) -> DefinedModel:
        """The model that a LOAD frame names."""
        section = spec["model_yaml_config"][SECTION]
        directory = section.get("directory") or spec["model_dir"]
        os.chdir(directory)
        found = section.get("loader")
        target = open_again(section["object"], found) if found else locate(section["object"], directory)
        application = graph(target)
        part = application.part(section["part"]) if "part" in section else application.root
        choose_device()
        shaped = part.definition.reshaped(spec.get("sizes") or (), spec.get("lengths") or ())
        facts = WorkerFacts(part.name, spec)
        take_facts = getattr(part.definition.target, "__jitney_worker__", None)
        if take_facts is not None:
            take_facts(facts)
        model = cls(shaped, spec.get("debug_errors", False), resolver(part, facts))
        model.name = spec.get("model_name", model.name)
        return model

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its coroutines run."""
        return self.instance.loop

    @property
    def is_mixed(self) -> bool:
        """Whether some of its calls run beside planned batches."""
        return self.definition.is_mixed

    def turns(self) -> Turns | None:
        """Which of its batches wait for each other, if not all run side by side."""
        return Turns(self.definition, METHOD_HEADER) if self.definition.is_mixed else None

    def warm_up(self, progress: Progress) -> WarmUpReport:
        """Runs the samples before there are requests."""
        return warm_up(self.instance, progress)

    def handle(self, rows: list[Row], context: WorkerContext) -> Any:
        """Answers one batch; a coroutine where batches run side by side."""
        if self._concurrent:
            return self._handle_async(self.begin(rows, context))
        return self.finish(self.launch(self.begin(rows, context), context), context)

    def batches_at_a_time(self) -> int:
        """How many batches a worker may hold, so that the next one is read and the last one written while the
        function runs. That pays where the function waits for a GPU and not for the interpreter, and takes batches:
        requests as they came have their turn between these."""
        endpoints = self.definition.endpoints
        kept = any(one.streams or one.is_async for one in endpoints) or all(one.raw for one in endpoints)
        if self._concurrent or kept:
            return 1
        return self.definition.options.overlap or (OVERLAP if loaded_torch() is not None else 1)

    def begin(self, rows: list[Row], context: WorkerContext) -> DefinedBatch:
        """Reads the arguments of a batch."""
        batch = DefinedBatch(self, self._reader, rows, context, self._sizes, self._debug_errors)
        batch.arrange()
        return batch

    def launch(self, batch: DefinedBatch, context: WorkerContext) -> DefinedBatch:
        """Calls the functions; what they return may be on its way from the GPU still."""
        for places, execution in batch.executions:
            try:
                self.instance.run(execution, batch.emitter(places) if execution.endpoint.may_stream else None)
            except Exception as error:
                batch.fail(places, error)
        return batch

    def finish(self, batch: DefinedBatch, context: WorkerContext) -> EncodedReply:
        """Writes the answers of a batch."""
        batch.split()
        return batch.reply()

    async def _answer_lone(self, row: Row, metas: list[bytes], context: WorkerContext, batch_id: int) -> EncodedReply:
        """Answers the only item of a batch, as a batch would be answered: there is nothing to arrange or to split."""
        call = SingleCall(self.name, self.reserves, metas[0])
        calls = {0} if wants_value(row, metas[0]) else NO_CALLS
        encoder = AnswerEncoder(call.items, metas, calls, self._debug_errors)
        try:
            endpoint, call.items[0] = self._reader.open(row, metas[0], call.received)
            call.endpoint, arguments = endpoint.name, complete(endpoint, call.items[0])
            with CallContext(call, endpoint.name, True, (0,)):
                result = await self.instance.function(endpoint)(**arguments)
            if stream_of(result) is not None:
                return await self._stream_lone(row, result, context.for_batch(metas, batch_id))
            outcome = fetched(start_fetching(result))
        except Exception as error:
            outcome = error.errors.get(0, error) if isinstance(error, ItemErrors) else error
        meta, body = encoder.answer(0, outcome)
        return EncodedReply((LENGTHS.pack(len(meta), len(body)), meta, body))

    async def _stream_lone(self, row: Row, found: Any, context: WorkerContext) -> EncodedReply:
        """Sends an answer that turned out to come in pieces, as that of a batch."""
        batch = self.begin([row], context)
        for places, execution in batch.executions:
            await execution.run_async(lambda **_: found, batch.emitter(places))
        batch.split()
        return batch.reply()

    async def _handle_async(self, batch: DefinedBatch) -> EncodedReply:
        for places, execution in batch.executions:
            try:
                await self.instance.run_async(execution, batch.emitter(places))
            except Exception as error:
                batch.fail(places, error)
        batch.split()
        return batch.reply()


class _Sizes:
    """Endpoints whose largest batch was changed while they were served, as they are now."""

    def __init__(self) -> None:
        self._now: dict[str, Endpoint] = {}

    def of(self, endpoint: Endpoint, size: int) -> Endpoint:
        """The endpoint with this size."""
        now = self._now.get(endpoint.name, endpoint)
        if now.most_items != size:
            now = endpoint.resized(size)
        self._now[endpoint.name] = now
        return now


class _Requests:
    """The requests of the items of one endpoint in a batch."""

    __slots__ = ("_batch", "_endpoint", "_items", "model", "reserves")

    def __init__(self, batch: DefinedBatch, endpoint: str, items: Sequence[int]) -> None:
        self._batch = batch
        self._endpoint = endpoint
        self._items = items
        self.model = batch.model
        self.reserves = batch.reserves

    def request_at(self, position: int) -> Request:
        """The request of the item at this position."""
        return self._batch.request_at(self._items[position], self._endpoint)


class SingleCall:
    """What is known of a lone item: the source of its call's context."""

    __slots__ = ("_meta", "endpoint", "items", "model", "received", "reserves")

    def __init__(self, model: str, reserves: Reserves, meta: bytes) -> None:
        self.model = model
        self.reserves = reserves
        self.received = time.monotonic()
        self.endpoint = ""
        self.items: dict[int, Any] = {}
        self._meta = meta

    def request_at(self, position: int) -> Request:
        """Its request, made now if the function did not ask for it."""
        return _seen(self.items[position], self._meta, self.endpoint, self.received)


def _seen(item: Item, meta: bytes, endpoint: str, received: float) -> Request:
    if item.request is UNSEEN:
        item.request = WireRequest(meta, endpoint, received)
    return item.request


class DefinedBatch:
    """A batch on its way through the model: opened and arranged, run by the model, split and encoded."""

    def __init__(
        self,
        model: DefinedModel,
        reader: ItemReader,
        rows: list[Row],
        context: WorkerContext,
        sizes: _Sizes,
        debug_errors: bool,
    ) -> None:
        self._context = context
        self.model = model.name
        self.reserves = model.reserves
        self._received = time.monotonic()
        self._sizes = sizes
        self._outcomes: list[Any] = [None] * len(rows)
        self._calls: set[int] = {at for at, one in enumerate(zip(rows, context.metas)) if wants_value(*one)}
        """Items that are answered with values."""
        self.items: dict[int, Item] = {}
        self._tensors: dict[int, TensorItems] = {}
        """Requests in tensors."""
        self._groups: dict[str, tuple[Endpoint, list[int]]] = {}
        self.executions: list[tuple[list[int], Execution]] = []
        """The calls of each endpoint, and the places of their items in the batch."""
        self._failed_calls: set[int] = set()
        """Requests in tensors whose calls failed; of each the only one."""
        self._metas = metas = context.metas
        self._encoder = AnswerEncoder(self.items, metas, self._calls, debug_errors)
        for at, (row, meta) in enumerate(zip(rows, metas)):
            try:
                endpoint, opened = reader.open(row, meta, self._received)
            except Exception as error:
                self._outcomes[at] = error
                continue
            if isinstance(opened, Item):
                self.items[at] = opened
            else:
                self._tensors[at] = opened
            group = self._groups.get(endpoint.name)
            if group is None:
                self._groups[endpoint.name] = endpoint, [at]
            else:
                group[1].append(at)

    def arrange(self) -> None:
        """Arranges the calls. Of a request in tensors the place is there as often as it has items."""
        for endpoint, places in self._groups.values():
            now = self._resized(endpoint, places[-1])
            repeated = self._repeated(places) if self._tensors else places
            if repeated:
                execution = Execution(now, self._items_of(repeated), _Requests(self, endpoint.name, repeated))
                self.executions.append((repeated, execution))

    def request_at(self, at: int, endpoint: str) -> Request:
        """The request of an item, made now if its function did not ask for it."""
        if at in self._tensors:
            return self._tensors[at].request
        return _seen(self.items[at], self._metas[at], endpoint, self._received)

    @property
    def done(self) -> bool | None:
        """None if what the functions returned is there already, so that nobody need wait."""
        return None if all(execution.is_fetched for _, execution in self.executions) else True

    def wait(self) -> None:
        """Returns when what the functions returned has come from the GPU."""
        for _, execution in self.executions:
            execution.fetch()

    def split(self) -> None:
        """Keeps what became of the items."""
        plain = not self._calls and not self._tensors and not any(map(_wants_arrays, self._metas))
        for places, execution in self.executions:
            if places[0] in self._failed_calls:
                continue
            try:
                self._take(places, execution.outcomes(plain))
            except Exception as error:
                self.fail(places, error)

    def _repeated(self, places: list[int]) -> list[int]:
        return [at for at in places for _ in (self._tensors[at].items if at in self._tensors else (at,))]

    def _items_of(self, places: Sequence[int]) -> list[Item]:
        """The items at these places."""
        if not self._tensors:
            return [self.items[at] for at in places]
        distinct = dict.fromkeys(places)
        return [
            item for at in distinct for item in (self._tensors[at].items if at in self._tensors else (self.items[at],))
        ]

    def _resized(self, endpoint: Endpoint, newest: int) -> Endpoint:
        """The endpoint with the size that was in force when the newest of its items came."""
        size = read_batch_size(self._metas[newest])
        return self._sizes.of(endpoint, size) if size else endpoint

    def _take(self, positions: Sequence[int], outcomes: Sequence[Any]) -> None:
        """Keeps what became of these items."""
        for at, outcome in zip(positions, outcomes):
            if at in self._tensors:
                self._tensors[at].take(outcome)
            else:
                self._outcomes[at] = outcome

    def fail(self, places: Sequence[int], error: Exception) -> None:
        """The call failed: of one request it is the failure, of several it is the batch's."""
        if len(set(places)) > 1 or places[0] not in self._tensors:
            raise error
        self._failed_calls.add(places[0])
        self._tensors[places[0]].fail(error)

    def emitter(self, positions: Sequence[int]) -> Any:
        """Sends pieces of answers to their clients, now; says whether the client has left instead."""

        def emit(position: int, piece: Any) -> bool:
            at = positions[position]
            if self._context.cancelled(at):
                return True
            if (at in self._calls or at in self._tensors) and isinstance(piece, Response) and piece.is_head:
                return False  # A head, which neither handles nor tensors show.
            if at in self._tensors:
                self._tensors[at].add_piece(position - positions.index(at), piece)
                return False
            head, body = self._encoder.piece(at, piece)
            if at in self._encoder.streamed and not body:
                return False  # Nothing more to tell.
            self._encoder.streamed.add(at)
            writer = self._context.frame_writer
            if writer is None:
                raise RuntimeError("only a worker can stream")
            parts = assemble({0: POSITION.pack(at) + head}, [body])
            writer.send_chunk(self._context.batch_id, 1, parts)
            return False

        return emit

    def reply(self) -> EncodedReply:
        """The items of the batch's REPLY."""
        self.executions.clear()  # They know this batch: nothing of it is left to the garbage collector.
        if self._tensors:
            return EncodedReply(assemble_parts([self._encode_parts(at) for at in range(len(self._outcomes))]))
        metas: list[bytes] = []
        bodies: list[Bytes] = []
        for at, outcome in enumerate(self._outcomes):
            meta, body = self._encoder.answer(at, outcome)
            metas.append(meta)
            bodies.append(body)
        return EncodedReply(assemble_all(metas, bodies))

    def _encode_parts(self, at: int) -> tuple[bytes, list[Bytes]]:
        if at not in self._tensors:
            meta, body = self._encoder.answer(at, self._outcomes[at])
            return meta, [body]
        try:
            return self._tensors[at].encode()
        except Exception as error:
            meta, body = self._encoder.failed(at, error)
            return meta, [body]


def _wants_arrays(meta: bytes) -> bool:
    """Whether a client may accept arrays in their own form."""
    return _NPY in meta
