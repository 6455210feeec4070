"""From a value's content type to the object that a handler finds in its row, and from one element of its answer to the
bytes that the client gets.

The rules are TorchServe's: bytes and text as they are, tensors through `torch.save`, all the rest as JSON with two
spaces. Torch is looked up among the loaded modules, never imported. NaN and infinities, which JSON does not have, are
written as TorchServe writes them, unless the server asks for strict JSON: then they are `null`.

Most of what models answer are dictionaries and lists of numbers and texts. For these the library's writer in C cannot
be used, because it knows no indentation, and its writer in Python makes a generator for every level; ours takes half
the time. Whatever is not plain (other types, subclasses, NaN, deep nesting) is left to the library.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quote
from typing import Any

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


logger = logging.getLogger(__name__)

Raw = bytes | bytearray | memoryview
Reader = Callable[[Raw], Any]

JSON_SPACE = " \t\n\r"
_silence = {"until": 0.0, "left_out": 0.0}
"""Until when warnings about bodies are left out, and how many were."""

# The standard library has it, and its type stubs do not.
_scan_json: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def reader_for(content_type: str) -> Reader:
    """How a value of this content type reaches the handler."""
    if content_type == "application/json":
        return read_json
    if content_type.startswith("text"):
        return read_string
    return bytearray


def read_bytes(content_type: str) -> Reader:
    """Every value reaches the handler as bytes, whatever its content type is."""
    return bytearray


def parse_json(raw: Raw) -> Any:
    """The value, or `ValueError` or `RecursionError`.

    The scanner alone is twice as fast as `json.loads` on small bodies; everything else
    (white space before the value, a byte order mark, UTF-16) is left to `json.loads`.
    """
    try:
        text = str(raw, "utf-8")
        value, end = _scan_json(text, 0)
        if end == len(text) or not text[end:].strip(JSON_SPACE):
            return value
    except (ValueError, StopIteration, RecursionError):
        pass
    return json.loads(bytes(raw))


def read_json(raw: Raw) -> Any:
    """The parsed value, or the raw bytes when it is not JSON."""
    try:
        return parse_json(raw)
    except (ValueError, RecursionError) as error:
        _warn("the content type is JSON but the body is not, passing raw bytes: %s", error)
        return bytearray(raw)


def _warn(words: str, error: object) -> None:
    """One line a second at most, since clients choose how often; it says how many were left out before it."""
    now = time.monotonic()
    if now < _silence["until"]:
        _silence["left_out"] += 1
        return
    more = f" ({_silence['left_out']:.0f} like it were not logged)" if _silence["left_out"] else ""
    _silence.update(until=now + 1, left_out=0)
    logger.warning(words + "%s", error, more)


def read_string(raw: Raw) -> str | bytearray:
    """The text, or the raw bytes when it is not UTF-8."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        _warn("the content type is text but the body is not UTF-8, passing raw bytes: %s", error.reason)
        return bytearray(raw)


DEPTH_MAX = 16

_float, _int = float.__repr__, int.__repr__


class Unusual(Exception):
    """The value is not plain."""


def plain_json(value: Any) -> str:
    """A value as `json.dumps(value, indent=2)` writes it; raises `Unusual` if it is not plain."""
    return _write(value, "\n", DEPTH_MAX)


def _write(value: Any, newline: str, depth: int) -> str:
    kind = type(value)
    if kind is dict:
        return _write_dict(value, newline, depth)
    if kind is list or kind is tuple:
        return _write_list(value, newline, depth)
    if kind is str:
        return quote(value)
    if kind is float and value - value == 0.0:
        return _float(value)
    if kind is int:
        return _int(value)
    if value is None or kind is bool:
        return "null" if value is None else "true" if value else "false"
    raise Unusual


def _write_dict(value: dict[Any, Any], newline: str, depth: int) -> str:
    if not value:
        return "{}"
    if not depth:
        raise Unusual
    inner = newline + "  "
    texts = []
    for key, item in value.items():
        if type(key) is not str:
            raise Unusual
        if type(item) is float and item - item == 0.0:  # NaN and infinities are not plain.
            texts.append(f"{quote(key)}: {_float(item)}")
        else:
            texts.append(f"{quote(key)}: {_write(item, inner, depth - 1)}")
    return f"{{{inner}{(',' + inner).join(texts)}{newline}}}"


def _write_list(value: list[Any] | tuple[Any, ...], newline: str, depth: int) -> str:
    if not value:
        return "[]"
    if not depth:
        raise Unusual
    inner = newline + "  "
    texts = [
        _float(item) if type(item) is float and item - item == 0.0 else _write(item, inner, depth - 1) for item in value
    ]
    return f"[{inner}{(',' + inner).join(texts)}{newline}]"
