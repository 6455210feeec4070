"""From one element of a handler's answer to the bytes the client gets.

The rules are TorchServe's: bytes and text as they are, tensors through `torch.save`, all the
rest as JSON with two spaces. Torch is looked up among the loaded modules, never imported.
NaN and infinities, which JSON does not have, are written as TorchServe writes them, unless the
server asks for strict JSON: then they are `null`.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

from jitney.torchserve.plain_json import Unusual, plain_json

UNSUPPORTED_OUTPUT = "Unsupported model output data type."

_encode_slowly: Callable[[Any], str] = json.JSONEncoder(indent=2).encode
_strict = False


class UnsupportedOutput(Exception):
    """The handler returned something that has no byte form."""


def use_strict_json(strict: bool) -> None:
    """Chooses how numbers that JSON does not have are written, for the whole process."""
    global _encode_slowly, _strict
    _strict = strict
    _encode_slowly = _encode_strict if strict else json.JSONEncoder(indent=2).encode


def json_text(value: Any, default: Callable[[Any], Any]) -> str:
    """A value in one line of JSON."""
    try:
        return json.dumps(value, default=default, allow_nan=not _strict)
    except ValueError:  # It may hold a NaN; what else is wrong is said again.
        return json.dumps(_finite(json.dumps(value, default=default)))


def _encode_strict(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(json.dumps(value)), indent=2)


def _finite(text: str) -> Any:
    return json.loads(text, parse_constant=lambda _: None)


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


def _encode_json(output: Any) -> str:
    try:
        return plain_json(output)
    except Unusual:
        return _encode_slowly(output)


def _is_tensor(output: Any) -> bool:
    tensor_type = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor_type is not None and isinstance(output, tensor_type)


def _save_tensor(tensor: Any) -> bytes:
    buffer = io.BytesIO()
    sys.modules["torch"].save(tensor, buffer)
    return buffer.getvalue()
