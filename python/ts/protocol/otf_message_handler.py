"""The messages between TorchServe's frontend and a worker ("OTF": big-endian, a length before content), for code and
tests that import them, and the parts of an answer that a handler sends before the last one.

Jitney never starts this protocol: its workers are `python -m jitney.worker` and speak other frames. What values are
read and written as is theirs too (`jitney.torchserve`), so both always agree.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jitney.torchserve.bodies import UNSUPPORTED_OUTPUT, UnsupportedOutput, encode_output, reader_for
from ts.utils.util import deprecated

logger = logging.getLogger(__name__)

LOAD_MSG = b"L"
PREDICT_MSG = b"I"
END_OF_LIST = -1

int_size = 4
bool_size = 1

_INT = struct.Struct("!i")
STREAM_NEXT = "ts_stream_next"
BATCH_FAILED = b"error"
UNSUPPORTED_STATUS = 503


def retrieve_msg(conn: socket.socket) -> tuple[bytes, Any]:
    """The next command and its message; ends the process when the frontend has disconnected."""
    command = read_bytes(conn, 1)
    if command == LOAD_MSG:
        return command, read_load(conn)
    if command == PREDICT_MSG:
        return command, read_batch(conn)
    raise ValueError(f"Invalid command: {command!r}")


def read_bytes(conn: socket.socket, length: int) -> bytes:
    """Exactly that many bytes."""
    if length < 0:
        raise ValueError(f"Invalid length: {length}")
    data = bytearray()
    while len(data) < length:
        piece = conn.recv(length - len(data))
        if len(piece) == 0:
            logger.info("Frontend disconnected.")
            sys.exit(0)
        data += piece
    return bytes(data)


def read_int(conn: socket.socket) -> int:
    """A signed number of four bytes."""
    return int(_INT.unpack(read_bytes(conn, int_size))[0])


def read_sized(conn: socket.socket) -> bytes:
    """A length and that many bytes."""
    return read_bytes(conn, read_int(conn))


def read_load(conn: socket.socket) -> dict[str, Any]:
    """The fields of a load message; `gpu` only if there is one."""
    message: dict[str, Any] = {"modelName": read_sized(conn), "modelPath": read_sized(conn)}
    message["batchSize"] = read_int(conn)
    message["handler"] = read_sized(conn)
    gpu = read_int(conn)
    if gpu >= 0:
        message["gpu"] = gpu
    message["envelope"] = read_sized(conn)
    message["limitMaxImagePixels"] = read_bytes(conn, bool_size) != b"\0"
    return message


def read_batch(conn: socket.socket) -> list[dict[str, Any]]:
    """The requests of an inference message."""
    requests = []
    while (length := read_int(conn)) != END_OF_LIST:
        request_id = read_bytes(conn, length)
        requests.append({"requestId": request_id, "headers": read_headers(conn), "parameters": read_parameters(conn)})
    return requests


def read_headers(conn: socket.socket) -> list[dict[str, bytes]]:
    """Names and values up to the end of the list."""
    headers = []
    while (length := read_int(conn)) != END_OF_LIST:
        headers.append({"name": read_bytes(conn, length), "value": read_sized(conn)})
    return headers


def read_parameters(conn: socket.socket) -> list[dict[str, Any]]:
    """Parameters up to the end of the list, decoded by their content types unless that is switched off."""
    decode = os.environ.get("TS_DECODE_INPUT_REQUEST", "true").lower() == "true"
    parameters = []
    while (length := read_int(conn)) != END_OF_LIST:
        name = read_bytes(conn, length).decode()
        content_type = read_sized(conn).decode()
        read = reader_for(content_type if decode else "")
        parameters.append({"name": name, "contentType": content_type, "value": read(read_sized(conn))})
    return parameters


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


def send_part(ret: Sequence[Any], request_ids: dict[int, str], message: str, code: int, context: Any) -> None:
    """Gives every request of the batch one part of its answer before the last one.

    It leaves for the client at once, as one HTTP chunk; what the handler returns in the end is the
    last part. `message` and `code` are used only outside Jitney's worker, where the context holds
    the socket of TorchServe's frontend. It may be called from any thread while the handler works
    on the batch. Clients that have left get no part (`context.cancelled(idx)` tells); when all of the batch have,
    `jitney.torchserve.failures.ClientsLeft` is raised.
    """
    if hasattr(context, "send_intermediate"):
        context.send_intermediate(ret, request_ids)
        return
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return  # One rank speaks for all.
    context.cl_socket.sendall(create_predict_response(ret, request_ids, message, code, context, True))


@deprecated("0.9.0", "ts.handler_utils.utils.send_intermediate_predict_response")
def send_intermediate_predict_response(
    ret: Sequence[Any], request_ids: dict[int, str], message: str, code: int, context: Any
) -> None:
    """See `send_part`."""
    send_part(ret, request_ids, message, code, context)


def _int(number: int) -> bytes:
    return _INT.pack(number)


def _sized(content: str | bytes | bytearray | memoryview) -> bytes:
    data = content.encode() if isinstance(content, str) else bytes(content)
    return _int(len(data)) + data
