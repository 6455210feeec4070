"""The envelope `kservev2`: the Open Inference Protocol, KServe's version 2.

Every input tensor is a row for the handler, the object the client sent with its `data` in its shape; every result
is an output tensor. Shapes and types are read and written without numpy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from ts.torch_handler.request_envelope.base import BaseEnvelope, Rows, bad_request, document_of, plain, share_out


class KServev2Envelope(BaseEnvelope):
    """Unwraps the tensors of all requests and shares the results out."""

    def parse_input(self, data: Rows) -> Rows:
        """The inputs of all requests, one after the other."""
        self._requests = [document_of(row, "inputs") for row in data]
        rows = [row_of(tensor) for request in self._requests for tensor in request["inputs"]]
        # Where TorchServe's handlers look for them.
        self.context.input_request_id = self._requests[0].get("id")
        self.context.input_names = [name for request in self._requests for name in names_of(request)]
        return rows

    def format_output(self, data: Any) -> Rows:
        """One response object per request."""
        shares = share_out(data, [len(request["inputs"]) for request in self._requests])
        return [self._response(idx, share) for idx, share in enumerate(shares)]

    def _response(self, idx: int, results: Any) -> dict[str, Any]:
        request, context = self._requests[idx], self.context
        names = names_of(request)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        return {
            "id": request.get("id") or context.get_request_id(idx),
            "model_name": name_of(context),
            "model_version": version_of(context.manifest),
            "outputs": [
                write_tensor(names[at] if at < len(names) else f"output-{at}", result)
                for at, result in enumerate(results)
            ],
        }


def names_of(request: dict[str, Any]) -> list[str]:
    """The names of a request's inputs."""
    return [str(tensor.get("name", f"input-{at}")) for at, tensor in enumerate(request["inputs"])]


def name_of(context: Any) -> str:
    """The model's name in its manifest, as TorchServe answers; the name it is registered under without one."""
    named = ((context.manifest or {}).get("model") or {}).get("modelName")
    return str(named or getattr(context, "model_name", ""))


def version_of(manifest: dict[str, Any]) -> str:
    """The model's version in its manifest."""
    return str((manifest.get("model") or {}).get("modelVersion") or "1.0")


NUMBERS = frozenset(("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
                     "float32", "float64"))  # fmt: skip
"""Types of arrays and tensors that the protocol has too; its names are in capitals, with FP for float."""


def row_of(tensor: Any) -> dict[str, Any]:
    """An input as handlers see it: all its fields, and its data as a value."""
    if not isinstance(tensor, dict) or "data" not in tensor:
        raise bad_request('Every input must be an object with "name", "shape", "datatype" and "data".')
    return {**tensor, "data": value_of(tensor)}


def value_of(tensor: dict[str, Any]) -> Any:
    """An input's value: nested lists of its shape, or the first element of a tensor of bytes."""
    data = list(flat(tensor["data"]))
    if tensor.get("datatype") == "BYTES":
        return data[0] if data else ""
    return shaped(data, tensor.get("shape", [len(data)]), str(tensor.get("name", "")))


def shaped(data: list[Any], shape: Any, name: str) -> Any:
    """Flat data as nested lists, row by row; one size may be -1 and follows from the others."""
    sizes = list(shape) if isinstance(shape, list) else [shape]
    if sizes.count(-1) == 1:
        others = math.prod(size for size in sizes if type(size) is int and size != -1)
        sizes[sizes.index(-1)] = len(data) // others if others else 0
    if not all(type(size) is int and size >= 0 for size in sizes) or math.prod(sizes) != len(data):
        raise bad_request(f'Input "{name}" has {len(data)} elements, which does not match its shape {shape}.')
    for size in reversed(sizes[1:]):
        data = [data[at : at + size] for at in range(0, len(data), size)] if size else []
    return data if sizes else data[0]


def flat(value: Any) -> Iterator[Any]:
    """The elements of lists in lists."""
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from flat(element)
    else:
        yield value


def write_tensor(name: str, result: Any) -> dict[str, Any]:
    """A result as an output with flat data. What is no number travels as text, objects as their JSON."""
    data = list(flat(plain(result)))
    kind = str(getattr(result, "dtype", "")).rpartition(".")[2]
    datatype = kind.replace("float", "fp").upper() if kind in NUMBERS else datatype_of(data)
    if datatype == "BYTES":
        data = [element if isinstance(element, str) else json.dumps(element) for element in data]
    return {"name": name, "datatype": datatype, "data": data, "shape": [len(data)]}


def datatype_of(data: list[Any]) -> str:
    """The type of plain elements; whole numbers among fractions are fractions."""
    kinds = {type(element) for element in data}
    if kinds <= {bool} and kinds:
        return "BOOL"
    if kinds <= {int}:
        return "INT64" if max(data, default=0) < 1 << 63 else "UINT64"
    return "FP64" if kinds <= {int, float} else "BYTES"
