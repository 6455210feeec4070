"""The worker's side of a model of Triton's Python backend: rows of tensors in, requests of its own kind, answers out.

A batch of a decoupled model is over when each of its requests has had its last response.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from jitney.handle.part import calling
from jitney.triton import framed, types
from jitney.triton.calls import Calls
from jitney.triton.ensemble import Ensemble
from jitney.triton.messages import (
    SEQUENCE_END,
    SEQUENCE_START,
    BackendTensor,
    InferenceRequest,
    InferenceResponse,
    ResponseSender,
    TritonError,
)
from jitney.triton.model import TritonModel
from jitney.triton.states import SequenceStates
from jitney.values.tensor import RawTensor
from jitney.worker.answers import CAUSE_STATED
from jitney.worker.batch import Row, TensorRow, read_headers
from jitney.worker.context import WorkerContext
from jitney.worker.protocol import POSITION, Bytes, calls_greeting
from jitney.worker.reply import EncodedReply
from jitney.worker.writer import assemble, assemble_parts, encode_failed, encode_fields, encode_tensors

SECTION = "triton"
REQUEST_HEADER, RESPONSE_HEADER = "jitney request", "jitney response"
"""What the client says about its request and the model about its response, in JSON; names that no client can send."""
REQUEST_WORD, SEQUENCE_WORD = REQUEST_HEADER.encode(), b"ts_request_sequence"
STATUSES = {
    TritonError.INVALID_ARG: 400,
    TritonError.NOT_FOUND: 404,
    TritonError.UNAVAILABLE: 503,
    TritonError.UNSUPPORTED: 400,
    TritonError.ALREADY_EXISTS: 409,
    TritonError.CANCELLED: 499,
}
NOT_TENSORS = "this model takes tensors: POST /v2/models/NAME/infer, or the same over gRPC"


class TritonWorkerModel:
    """What a worker that runs such a model calls."""

    def __init__(self, spec: dict[str, Any]) -> None:
        config = spec["model_yaml_config"][SECTION]
        directory = os.path.abspath(spec["model_dir"])
        called = spec.get("calls")
        if called:
            InferenceRequest.caller = Calls(calling(called["socket"], calls_greeting(called["token"])))
        gpu = spec.get("gpu_id")
        args = {
            "model_name": spec["model_name"],
            "model_version": spec.get("model_version", "1"),
            "model_repository": os.path.dirname(directory),
            "model_instance_kind": "CPU" if gpu is None else "GPU",
            "model_instance_device_id": str(gpu or 0),
            "model_instance_name": f"{spec['model_name']}_0",
        }
        self._ensemble = Ensemble(config) if "ensemble_scheduling" in config else None
        if self._ensemble is None:
            self._model = TritonModel(os.path.join(directory, spec["handler"]), config, args)
            config = self._model.config
        self._batches = bool(config.get("max_batch_size"))
        self._datatypes = {one["name"]: types.from_config(one["data_type"]) for one in config.get("output") or ()}
        self._controls = [
            (one["name"], one["control"][0])
            for one in config.get("sequence_batching", {}).get("control_input", ())
            if one.get("control")
        ]
        self._states = SequenceStates(config.get("sequence_batching", {}), self._batches)

    def close(self) -> None:
        """Ends the model."""
        if self._ensemble is None:
            self._model.close()

    def handle(self, rows: list[Row], context: WorkerContext) -> Any:
        """Answers one batch; that of an ensemble is a coroutine, since others run beside it."""
        items: list[tuple[bytes, list[Bytes]] | None] = [None] * len(rows)
        read: list[tuple[int, InferenceRequest]] = []
        for at, row in enumerate(rows):
            if isinstance(row, TensorRow):
                read.append((at, self._request(row, context.metas[at])))
            else:
                items[at] = _failed(TritonError(NOT_TENSORS, TritonError.INVALID_ARG))
        if self._ensemble is not None:
            return self._run_ensemble(self._ensemble, read, items)
        requests = [request for _, request in read]
        if self._model.decoupled:
            streams = [_Responses(self, context, at, request) for at, request in read]
            self._model.execute(requests)
            for stream in streams:
                items[stream.at] = stream.wait()
        elif requests:
            for (at, request), response in zip(read, self._model.execute(requests)):
                items[at] = self._answer(response, request)
        return EncodedReply(assemble_parts([item for item in items if item is not None]))

    async def _run_ensemble(self, ensemble: Ensemble, read: Any, items: list[Any]) -> EncodedReply:
        import asyncio

        responses = await asyncio.gather(*(ensemble.respond(request) for _, request in read))
        for (at, request), response in zip(read, responses):
            items[at] = self._answer(response, request)
        return EncodedReply(assemble_parts(items))

    def _request(self, row: TensorRow, meta: bytes) -> InferenceRequest:
        told, sequence, flags = _told(meta)
        tensors = [BackendTensor(name, tensor) for name, tensor in row.items()]
        if self._controls:
            batch = [next(iter(row.values())).shape[0]] if self._batches else []
            tensors += [
                BackendTensor(name, _control(one, sequence, flags, [*batch, 1])) for name, one in self._controls
            ]
        tensors += self._states.inputs(sequence, bool(flags & SEQUENCE_START), row)
        return InferenceRequest(
            requested_output_names=row.outputs or list(self._datatypes),
            inputs=tensors,
            request_id=told.get("id", ""),
            correlation_id=sequence,
            flags=flags,
            timeout=told.get("parameters", {}).pop("timeout", 0),
            parameters=told.get("parameters"),
        )

    def tensors(self, response: InferenceResponse, request: InferenceRequest) -> list[tuple[str, RawTensor]]:
        """The outputs that the request asks for, as they travel."""
        asked, datatypes = request.requested_output_names(), self._datatypes
        named = [(one.name(), one) for one in response.output_tensors()]
        return [(name, framed.raw(one, datatypes.get(name))) for name, one in named if not asked or name in asked]

    def _answer(self, response: InferenceResponse | None, request: InferenceRequest) -> tuple[bytes, list[Bytes]]:
        if response is None:
            return _failed(TritonError("the model gave no response to this request"))
        error = response.error()
        if error is not None:
            return _failed(error)
        self._states.keep(request.correlation_id(), bool(request.flags() & SEQUENCE_END), response)
        tensors = self.tensors(response, request)
        told = {RESPONSE_HEADER: response.parameters()} if response.has_parameters else {}
        return encode_tensors(200, told, tensors), [one.data for _, one in tensors]


class _Responses:
    """The responses to one request of a decoupled model: each is sent at once, from whichever thread."""

    def __init__(self, model: TritonWorkerModel, context: WorkerContext, at: int, request: InferenceRequest) -> None:
        self.at = at
        self._model, self._request = model, request
        self._writer, self._batch = context.frame_writer, context.batch_id
        self._begun = False
        self._error: TritonError | None = None
        self._over = threading.Event()
        request.sender = ResponseSender(self._send, lambda: context.cancelled(at))

    def _send(self, response: InferenceResponse | None, is_last: bool) -> None:
        if response is not None and self._error is None:
            self._error = response.error()
            if self._error is None:
                tensors = self._model.tensors(response, self._request)
                self._send_piece(framed.encode(tensors, parameters=json.loads(response.parameters())))
        if is_last:
            self._over.set()

    def _send_piece(self, body: bytes) -> None:
        if self._writer is None:
            raise RuntimeError("only a worker can stream")
        head = b"" if self._begun else encode_fields(200, "", {"Content-Type": framed.CONTENT_TYPE})
        self._begun = True
        self._writer.send_chunk(self._batch, 1, assemble({0: POSITION.pack(self.at) + head}, [body]))

    def wait(self) -> tuple[bytes, list[Bytes]]:
        """The end of the answer, once the last response was sent."""
        self._over.wait()
        if self._error is not None:
            return _failed(self._error)
        return (b"", [b""]) if self._begun else (encode_tensors(200, {}, []), [])


def _told(meta: bytes) -> tuple[dict[str, Any], Any, int]:
    """What a request says beside its tensors, the id of its sequence, and its flags. Most say nothing; to read their
    headers would take longer than all else here."""
    if REQUEST_WORD not in meta and SEQUENCE_WORD not in meta:
        return {}, 0, 0
    headers = read_headers(meta)
    sequence: Any = headers.get("ts_request_sequence_id") or 0
    flags = SEQUENCE_START * (headers.get("ts_request_sequence_start") == "true")
    flags |= SEQUENCE_END * (headers.get("ts_request_sequence_end") == "true")
    told = json.loads(headers.get(REQUEST_HEADER) or "{}")
    return told, int(sequence) if str(sequence).isdigit() else sequence, flags


def _failed(error: TritonError) -> tuple[bytes, list[Bytes]]:
    return encode_failed(CAUSE_STATED, STATUSES.get(error.code(), 500)), [error.message().encode(errors="replace")]


def _control(control: dict[str, Any], sequence: Any, flags: int, shape: list[int]) -> Any:
    """One value of a control for each row."""
    import numpy

    kind = control["kind"]
    if kind == "CONTROL_SEQUENCE_CORRID":
        datatype = types.numpy_type(types.from_config(control["data_type"]))
        return numpy.full(shape, str(sequence).encode() if datatype is numpy.object_ else int(sequence), datatype)
    is_true = {
        "CONTROL_SEQUENCE_START": bool(flags & SEQUENCE_START),
        "CONTROL_SEQUENCE_END": bool(flags & SEQUENCE_END),
    }.get(kind, True)
    name, values = next((name, values) for name, values in control.items() if name.endswith("_false_true"))
    datatype = types.numpy_type(name.removesuffix("_false_true").upper())
    return numpy.full(shape, values[int(is_true)], datatype)
