"""The envelope `kservev2`: the Open Inference Protocol, KServe's version 2.

Every input tensor is a row for the handler, the object the client sent with its `data` in its shape; every result
is an output tensor. The shapes and types themselves are read and written in `tensors`.
"""

from __future__ import annotations

from typing import Any

from ts.torch_handler.request_envelope.base import BaseEnvelope, Rows
from ts.torch_handler.request_envelope.rows import document_of, share_out
from ts.torch_handler.request_envelope.tensors import row_of, write_tensor


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
    return str(((context.manifest or {}).get("model") or {}).get("modelName") or context.model_name)


def version_of(manifest: dict[str, Any]) -> str:
    """The model's version in its manifest."""
    return str((manifest.get("model") or {}).get("modelVersion") or "1.0")
