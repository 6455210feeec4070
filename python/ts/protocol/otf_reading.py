"""Reads the messages of TorchServe's frontend to a worker ("OTF": big-endian, length before content)."""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
from typing import Any

from jitney.torchserve.inputs import reader_for

logger = logging.getLogger(__name__)

LOAD_MSG = b"L"
PREDICT_MSG = b"I"
END_OF_LIST = -1

int_size = 4
bool_size = 1

_INT = struct.Struct("!i")


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
