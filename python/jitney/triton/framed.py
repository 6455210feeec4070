"""Tensors in one piece of bytes: the length of the Open Inference Protocol's JSON, the JSON, and the elements.

The server reads and writes the same (`open_inference::framed`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from jitney.call.errors import Error
from jitney.execution.tensor_answers import as_tensor
from jitney.triton.messages import BackendTensor, InferenceRequest, InferenceResponse
from jitney.values.tensor import BF16, BYTES, FORMATS, RawTensor

CONTENT_TYPE = "application/x-jitney-open-inference"
LENGTH = struct.Struct("<I")
NUMPY_NAMES = {
    datatype: code if code.startswith("<") else f"|{code}"
    for datatype, (_, code) in FORMATS.items()
    if datatype not in (BF16, BYTES, "BOOL")
}
"""How numpy names the types whose elements lie as they travel."""


def raw(tensor: BackendTensor, datatype: str | None = None) -> RawTensor:
    """A tensor as it travels, in the declared datatype if there is one."""
    held = tensor.raw
    if isinstance(held, RawTensor):
        return held
    if datatype is not None and held.dtype.str == NUMPY_NAMES.get(datatype) and held.size and held.flags.c_contiguous:
        return RawTensor(datatype, held.shape, held.data.cast("B"))
    try:
        return as_tensor(held, datatype)
    except (ValueError, TypeError) as error:
        raise Error(f"the output {tensor.name()!r} is no tensor: {error}") from None


def encode(tensors: Sequence[tuple[str, RawTensor]], **more: Any) -> bytes:
    """Named tensors, and what else the JSON says."""
    listed = [
        {
            "name": name,
            "datatype": one.datatype,
            "shape": one.shape,
            "parameters": {"binary_data_size": len(one.data)},
        }
        for name, one in tensors
    ]
    head = json.dumps({"inputs": listed, **more}).encode()
    return b"".join((LENGTH.pack(len(head)), head, *(bytes(one.data) for _, one in tensors)))


def request(of: InferenceRequest) -> bytes:
    """A request to another model."""
    parameters = json.loads(of.parameters())
    if of.correlation_id():
        flags = of.flags()
        parameters.update(sequence_id=of.correlation_id(), sequence_start=bool(flags & 1), sequence_end=bool(flags & 2))
    if of.timeout():
        parameters["timeout"] = of.timeout()
    parameters["binary_data_output"] = True
    outputs = [{"name": name} for name in of.requested_output_names()]
    tensors = [(one.name(), raw(one)) for one in of.inputs()]
    return encode(tensors, id=of.request_id(), parameters=parameters, outputs=outputs)


def response(body: bytes) -> InferenceResponse:
    """The response that a body holds."""
    (length,) = LENGTH.unpack_from(body)
    at = LENGTH.size + length
    head = json.loads(body[LENGTH.size : at])
    tensors = []
    for one in head.get("outputs") or head.get("inputs") or ():
        end = at + one["parameters"]["binary_data_size"]
        tensors.append(BackendTensor(one["name"], RawTensor(one["datatype"], one["shape"], bytearray(body[at:end]))))
        at = end
    return InferenceResponse(tensors, parameters=head.get("parameters"))
