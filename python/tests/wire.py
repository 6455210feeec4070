"""The server's half of the protocol, for tests: writes batches, reads replies, starts workers.

It is written from protocol/spec.md alone and shares no encoding code with the worker.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
from typing import Any

HELLO, LOAD, LOADED, LOAD_FAILED, BATCH, REPLY, FAILED, CHUNK, STOP, TIMES, CANCEL, PROGRESS, SHARE = range(1, 14)
PATIENCE_SECONDS = 300
"""When a test gives up waiting for what must happen; no test passes or fails by how fast the machine is."""
PYTHON_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VECTORS_PATH = os.path.join(os.path.dirname(PYTHON_DIR), "protocol", "vectors.json")


def frame(kind: int, payload: bytes = b"", count: int = 0, frame_id: int = 0, flags: int = 0) -> bytes:
    return struct.pack("<IBBHQ", len(payload), kind, flags, count, frame_id) + payload


def control(kind: int, value: dict[str, Any] | None = None, frame_id: int = 0) -> bytes:
    payload = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() if value else b""
    return frame(kind, payload, 0, frame_id)


def field(name: str | bytes, value: str | bytes) -> bytes:
    name = name.encode() if isinstance(name, str) else name
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<HI", len(name), len(value)) + name + value


ORIGINS, PRIORITIES = ("http", "grpc", "python"), ("interactive", "bulk")


def head(params: int, form: int, headers=(), request_id="r", deadline_ms=None, batch_size=0, origin="http",
         priority="interactive") -> bytes:  # fmt: skip
    """What a meta begins with, up to its parameters."""
    block = b"".join(field(name, value) for name, value in headers)
    left = 0xFFFFFFFF if deadline_ms is None else deadline_ms
    facts = struct.pack("<IHBB", left, batch_size, ORIGINS.index(origin), PRIORITIES.index(priority))
    return struct.pack("<BBHI", len(request_id), params, form, len(block)) + facts + request_id.encode() + block


def item(params=(), headers=(), request_id="r", **facts) -> tuple[bytes, bytes]:
    """Meta and body of an item; params are (name, content type, value) triples."""
    meta = head(len(params), 0, headers, request_id, **facts)
    for name, content_type, value in params:
        names = name.encode(), content_type.encode()
        meta += struct.pack("<HHI", len(names[0]), len(names[1]), len(value)) + names[0] + names[1]
    return meta, b"".join(value for _, _, value in params)


def entry(name: str, datatype: str, shape, value: bytes) -> bytes:
    """A tensor in a meta; one without a datatype names an output that is asked for."""
    kind = struct.pack(f"<B{len(shape)}Q", len(shape), *shape) + datatype.encode() if datatype else b""
    return struct.pack("<HHI", len(name.encode()), len(kind), len(value)) + name.encode() + kind


def tensors(inputs=(), outputs=(), headers=(), request_id="r") -> tuple[bytes, bytes]:
    """Meta and body of an item in tensors; inputs are (name, datatype, shape, value)."""
    meta = head(len(inputs) + len(outputs), 1, headers, request_id)
    meta += b"".join(entry(*one) for one in inputs) + b"".join(entry(name, "", (), b"") for name in outputs)
    return meta, b"".join(value for *_, value in inputs)


WIDTHS = {"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2, "UINT32": 4, "INT32": 4,
          "FP32": 4, "UINT64": 8, "INT64": 8, "FP64": 8}  # fmt: skip


def filled(datatype: str, shape: list[int], value: bytes) -> bool:
    """Whether a value has as many elements as its shape says."""
    if datatype != "BYTES":
        return len(value) == WIDTHS[datatype] * math.prod(shape)
    at, count = 0, 0
    while at < len(value):
        at, count = at + 4 + struct.unpack_from("<I", value, at)[0], count + 1
    return (at, count) == (len(value), math.prod(shape))


def decode_tensors(meta: bytes, at: int, body: bytes) -> list[dict[str, Any]]:
    """The tensors of an answer, whose entries begin at this place of its meta."""
    (count,) = struct.unpack_from("<H", meta, at)
    at, value_at, found = at + 2, 0, []
    for _ in range(count):
        name_len, kind_len, value_len = struct.unpack_from("<HHI", meta, at)
        at += 8
        name, kind = meta[at : at + name_len].decode(), meta[at + name_len : at + name_len + kind_len]
        shape = list(struct.unpack_from(f"<{kind[0]}Q", kind, 1))
        value = body[value_at : value_at + value_len]
        assert filled(kind[1 + 8 * kind[0] :].decode(), shape, value)
        found.append({"name": name, "datatype": kind[1 + 8 * kind[0] :].decode(), "shape": shape, "value": value})
        at, value_at = at + name_len + kind_len, value_at + value_len
    assert (at, value_at) == (len(meta), len(body))
    return found


def table(items: list[tuple[bytes, bytes]]) -> bytes:
    lengths = b"".join(struct.pack("<II", len(meta), len(body)) for meta, body in items)
    return lengths + b"".join(meta + body for meta, body in items)


def batch(items: list[tuple[bytes, bytes]], frame_id: int = 1) -> bytes:
    return frame(BATCH, table(items), len(items), frame_id)


def bodies(*values: bytes, content_type: str = "") -> list[tuple[bytes, bytes]]:
    """Items with one parameter `body` each and ids r0, r1, ..."""
    return [item([("body", content_type, value)], request_id=f"r{i}") for i, value in enumerate(values)]


def decode_reply(payload: bytes, count: int) -> list[dict[str, Any]]:
    """The items of a REPLY."""
    return [{**decode_reply_meta(meta, body), "body": body} for meta, body in cut(payload, count)]


def cut(payload: bytes, count: int) -> list[tuple[bytes, bytes]]:
    """The metas and bodies of so many items, as their table says."""
    items, at = [], 8 * count
    for i in range(count):
        meta_len, body_len = struct.unpack_from("<II", payload, 8 * i)
        items.append((payload[at : at + meta_len], payload[at + meta_len : at + meta_len + body_len]))
        at += meta_len + body_len
        assert at <= len(payload)
    assert at == len(payload)
    return items


def decode_reply_meta(meta: bytes, body: bytes = b"") -> dict[str, Any]:
    if not meta:
        return {"outcome": 0, "cause": 0, "status": 200, "phrase": "", "headers": []}
    outcome, cause, status, phrase_len, header_count = struct.unpack_from("<BBHHH", meta)
    assert outcome in (0, 1, 2, 3)
    at = 8 + phrase_len
    headers = []
    for _ in range(header_count):
        name_len, value_len = struct.unpack_from("<HI", meta, at)
        at += 6
        headers.append([meta[at : at + name_len].decode(), meta[at + name_len : at + name_len + value_len].decode()])
        at += name_len + value_len
    assert at == len(meta) or outcome in (2, 3)
    return {
        **({"lengths": decode_lengths(meta, at, body)} if outcome == 3 else {}),
        **({"tensors": decode_tensors(meta, at, body)} if outcome == 2 else {}),
        "outcome": outcome, "cause": cause, "status": status,
        "phrase": meta[8 : 8 + phrase_len].decode(), "headers": headers,
    }  # fmt: skip


def decode_lengths(meta: bytes, at: int, body: bytes) -> list[list[int]]:
    """The lengths of texts, and of the numbers behind them, of an answer whose numbers were taken out."""
    (count,) = struct.unpack_from("<I", meta, at)
    lengths = struct.unpack(f"<{2 * count}I", meta[at + 4 :])
    assert sum(lengths) <= len(body) and not any(one % 4 for one in lengths[1::2])
    return [list(pair) for pair in zip(lengths[::2], lengths[1::2])]


def decode_chunk(payload: bytes, count: int) -> list[dict[str, Any]]:
    """The pieces of a CHUNK."""
    pieces = []
    for meta, body in cut(payload, count):
        (position,) = struct.unpack_from("<H", meta)
        piece = decode_reply_meta(meta[2:])
        assert piece["outcome"] == 0
        pieces.append({"position": position, **piece, "body": body})
    return pieces


class Server:
    """The server's end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PATIENCE_SECONDS)

    def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def read_any(self) -> tuple[int, int, int, bytes]:
        """Returns (kind, count, id, payload)."""
        length, kind, flags, count, frame_id = struct.unpack("<IBBHQ", self.exactly(16))
        assert flags == 0
        return kind, count, frame_id, self.exactly(length)

    def read(self) -> tuple[int, int, int, bytes]:
        """The next frame; when the process collects garbage is no business of most tests."""
        received = self.read_any()
        while received[0] == TIMES and received[3] and all(key.startswith("gc_") for key in json.loads(received[3])):
            received = self.read_any()
        return received

    def read_control(self, expected: int) -> dict[str, Any]:
        kind, count, _, payload = self.read()
        assert (kind, count) == (expected, 0), (kind, payload)
        return json.loads(payload) if payload else {}

    def read_answer(self) -> tuple[int, int, int, bytes]:
        """The next frame that is no TIMES."""
        answer = self.read()
        return self.read() if answer[0] == TIMES else answer

    def read_timed(self) -> tuple[dict[str, Any], tuple[int, int, int, bytes]]:
        """A TIMES and the answer to the same batch."""
        kind, count, frame_id, payload = self.read()
        assert (kind, count) == (TIMES, 0), (kind, payload)
        answer = self.read()
        assert answer[2] == frame_id
        return json.loads(payload), answer

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def load(self, model_dir: str, handler: str, **fields: Any) -> None:
        self.read_control(HELLO)
        self.send(control(LOAD, load_spec(model_dir, handler, **fields)))

    def ask(self, items: list[tuple[bytes, bytes]], frame_id: int = 1) -> Any:
        """Sends a batch; returns the reply's items, or the FAILED object."""
        self.send(batch(items, frame_id))
        kind, count, reply_id, payload = self.read_answer()
        assert reply_id == frame_id
        if kind == FAILED:
            return json.loads(payload)
        assert (kind, count) == (REPLY, len(items))
        return decode_reply(payload, count)

    def ended(self) -> bool:
        """Whether the worker closes the connection now."""
        return self.sock.recv(1) == b""


def load_spec(model_dir: str, handler: str, **fields: Any) -> dict[str, Any]:
    spec = {
        "model_name": "m", "model_version": "1.0", "model_dir": str(model_dir), "handler": handler,
        "batch_size": 4, "gpu_id": None, "envelope": None, "limit_max_image_pixels": True,
        "decode_input": True, "manifest": {"model": {"handler": handler}}, "model_yaml_config": {},
        "server_version": "0.12.0", "mode": "single",
    }  # fmt: skip
    return {**spec, **fields}
