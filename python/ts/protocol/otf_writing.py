"""Writes a worker's answers in the wire format of TorchServe's frontend ("OTF")."""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from jitney.torchserve.outputs import UNSUPPORTED_OUTPUT, UnsupportedOutput, encode_output
from ts.protocol.otf_reading import END_OF_LIST

logger = logging.getLogger(__name__)

STREAM_NEXT = "ts_stream_next"
BATCH_FAILED = b"error"
UNSUPPORTED_STATUS = 503


def create_load_model_response(code: int, message: str) -> bytearray:
    """The answer to a load message."""
    return bytearray().join((_int(code), _sized(message), _int(END_OF_LIST)))


def create_predict_response(
    ret: Sequence[Any] | None,
    req_id_map: Mapping[int, str],
    message: str,
    code: int,
    context: Any = None,
    ts_stream_next: bool = False,
) -> bytearray:
    """The answer to a batch; `ret` is None if all of it failed, and then `code` is the status of every request.

    With `ts_stream_next` more parts will follow.
    """
    parts = [_int(code), _sized(message)]
    for idx, request_id in req_id_map.items():
        try:
            body = BATCH_FAILED if ret is None else encode_output(ret[idx])
        except UnsupportedOutput as error:
            logger.warning("output %d of the batch has no byte form: %r", idx, error.__cause__)
            return create_predict_response(None, req_id_map, UNSUPPORTED_OUTPUT, UNSUPPORTED_STATUS)
        if context is not None and ret is not None:
            _mark_stream(context, idx, ret[idx], ts_stream_next)
        parts += _sized(request_id), _head(idx, code, context), _sized(body)
    parts.append(_int(END_OF_LIST))
    return bytearray().join(parts)


def encode_response_headers(resp_hdr_map: Mapping[str, str]) -> bytes:
    """The number of headers, then their names and values."""
    fields = b"".join(_sized(str(name)) + _sized(str(value)) for name, value in resp_hdr_map.items())
    return _int(len(resp_hdr_map)) + fields


def _head(idx: int, code: int, context: Any) -> bytes:
    """Content type, status, phrase and headers of one answer."""
    if context is None:
        return _sized("") + _int(code) + _sized("") + encode_response_headers({})
    status, phrase = context.get_response_status(idx)
    content_type = context.get_response_content_type(idx) or ""
    headers = encode_response_headers(context.get_response_headers(idx))
    return _sized(content_type) + _int(int(status)) + _sized(phrase or "") + headers


def _mark_stream(context: Any, idx: int, output: Any, more: bool) -> None:
    """Sets the header that tells the client whether more of its answer follows.

    The model's stopping criteria decide if there are any, else the caller. A stream ends with the first answer
    that is not marked as one.
    """
    criteria = getattr(context, "stopping_criteria", None)
    if criteria:
        stopped = criteria[idx](output)
        if stopped is not None:
            context.set_response_header(idx, STREAM_NEXT, "false" if stopped else "true")
    elif more:
        context.set_response_header(idx, STREAM_NEXT, "true")
    elif context.get_response_headers(idx).get(STREAM_NEXT) == "true":
        context.set_response_header(idx, STREAM_NEXT, "false")


def _int(number: int) -> bytes:
    return struct.pack("!i", number)


def _sized(content: str | bytes | bytearray | memoryview) -> bytes:
    data = content.encode() if isinstance(content, str) else bytes(content)
    return _int(len(data)) + data
