"""From one element of a handler's answer to the bytes the client gets.

The rules are TorchServe's: bytes and text as they are, tensors through `torch.save`, all the
rest as JSON with two spaces. Torch is looked up among the loaded modules, never imported.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

UNSUPPORTED_OUTPUT = "Unsupported model output data type."

_encode_json = json.JSONEncoder(indent=2).encode


class UnsupportedOutput(Exception):
    """The handler returned something that has no byte form."""


def encode_output(output: Any) -> bytes | bytearray | memoryview:
    """Returns the body for one output."""
    if type(output) is str:
        try:
            return output.encode()
        except UnicodeEncodeError as error:
            raise UnsupportedOutput(UNSUPPORTED_OUTPUT) from error
    if isinstance(output, (bytes, bytearray)):
        return output
    if isinstance(output, memoryview):
        plain = output.ndim == 1 and output.itemsize == 1 and output.c_contiguous
        return output if plain else output.tobytes()
    return _encode_object(output)


def _encode_object(output: Any) -> bytes:
    try:
        if _is_tensor(output):
            return _save_tensor(output)
        if isinstance(output, str):
            return output.encode()
        return _encode_json(output).encode()
    except Exception as error:
        raise UnsupportedOutput(UNSUPPORTED_OUTPUT) from error


def _is_tensor(output: Any) -> bool:
    tensor_type = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor_type is not None and isinstance(output, tensor_type)


def _save_tensor(tensor: Any) -> bytes:
    buffer = io.BytesIO()
    sys.modules["torch"].save(tensor, buffer)
    return buffer.getvalue()
