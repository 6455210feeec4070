"""Writes protocol/handles.json: `python tests/make_handle_vectors.py`. Run it only to add vectors.

The JSON file is the truth that Rust and Python test against. This script spells frames and values
by hand and shares no code with either.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

CALL, CANCEL, ANSWER, FIRST, CHUNK, END, ERROR = range(1, 8)


def frame(kind: int, number: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack("<IBBHQ", len(payload), kind, flags, 0, number) + payload


def call_payload(
    body: bytes, model: str = "m", version: str = "", endpoint: str = "", kind: str = "", timeout_ms: int = 0,
    bulk: int = 0, tenant: str = "", cost: int = 0, headers: dict[str, str] | None = None,
) -> bytes:  # fmt: skip
    names = [one.encode() for one in (model, version, endpoint, kind)]
    claims = bool(tenant or cost)
    claim = struct.pack("<QB", cost, len(tenant)) + tenant.encode() if claims else b""
    block = b"".join(header(name.encode(), value.encode()) for name, value in (headers or {}).items())
    parts = claims | (2 if block else 0)
    block = struct.pack("<H", len(block)) + block if block else b""
    return struct.pack("<IBBHHHH", timeout_ms, bulk, parts, *map(len, names)) + b"".join(names) + claim + block + body


def header(name: bytes, value: bytes) -> bytes:
    return struct.pack("<HI", len(name), len(value)) + name + value


def bad_headers(name: str, block: bytes, length: int | None = None) -> dict[str, str]:
    payload = struct.pack("<IBBHHHH", 0, 0, 2, 1, 0, 0, 0) + b"m"
    payload += struct.pack("<H", len(block) if length is None else length) + block
    return {"name": name, "hex": frame(CALL, 1, payload).hex(), "error": "malformed"}


def call(name: str, number: int, body: bytes, **said: Any) -> dict[str, Any]:
    decoded = {"model": "m", "version": "", "endpoint": "", "kind": "", "timeout_ms": 0, "bulk": 0, **said}
    decoded = {"tenant": "", "cost": 0, "headers": {}, **decoded}
    data = frame(CALL, number, call_payload(body, **said))
    return {"name": name, "hex": data.hex(), "id": number, "body_hex": body.hex(), **decoded}


def answer(
    name: str, kind: int, number: int, timing: list[int], status: int, typed: str, body: bytes
) -> dict[str, Any]:
    payload = struct.pack("<IIIIHBBHH", *timing, status, len(typed)) + typed.encode() + body
    return {
        "name": name, "kind": kind, "hex": frame(kind, number, payload).hex(), "id": number,
        "timing": timing, "status": status, "content_type": typed, "body_hex": body.hex(),
    }  # fmt: skip


def error(name: str, number: int, status: int, code: str, kind: str, message: str, retry_ms: int) -> dict[str, Any]:
    payload = struct.pack("<HHI", status, len(kind), retry_ms) + kind.encode() + message.encode()
    return {
        "name": name, "kind": ERROR, "hex": frame(ERROR, number, payload).hex(), "id": number,
        "status": status, "code": code, "type": kind, "message": message, "retry_after_ms": retry_ms,
    }  # fmt: skip


def value(name: str, data: bytes, python: str) -> dict[str, str]:
    return {"name": name, "hex": data.hex(), "python": python}


def size(tag: bytes, count: int) -> bytes:
    return tag + struct.pack("<I", count)


def text(word: str) -> bytes:
    return size(b"s", len(word.encode())) + word.encode()


ONE = b"i" + struct.pack("<q", 1)
HEADERS = {"x-request-id": "order-17", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}

VECTORS = {
    "calls": [
        call("one-argument", 1, size(b"t", 1) + ONE),
        call(
            "everything",
            2**40,
            b"{}",
            model="grün",
            version="1.0",
            endpoint="price",
            kind="application/json",
            timeout_ms=1500,
            bulk=1,
            tenant="gold",
            cost=2**40,
        ),
        call("tenant", 3, size(b"t", 1) + ONE, tenant="two words"),
        call("cost", 4, size(b"t", 1) + ONE, endpoint="price", cost=17),
        call("headers", 9, b"x", headers=HEADERS),
        call("headers-and-claim", 10, b"x", tenant="gold", headers={"x-request-id": "a"}),
    ],
    "cancels": [{"name": "cancel", "hex": frame(CANCEL, 7).hex(), "id": 7}],
    "words": [
        answer("answer", ANSWER, 3, [1800, 5200, 8, 32, 7, 1, 1], 200, "application/x-jitney-value", ONE),
        answer("plain-bytes", ANSWER, 4, [0, 0, 1, 1, 0, 2, 6], 201, "", b"\x00\xff"),
        answer("first", FIRST, 5, [10, 20, 1, 4, 0, 1, 0], 200, "text/plain", b"On"),
        {"name": "chunk", "kind": CHUNK, "hex": frame(CHUNK, 5, b"ce").hex(), "id": 5, "body_hex": b"ce".hex()},
        {"name": "end", "kind": END, "hex": frame(END, 5).hex(), "id": 5},
        error("refused", 6, 503, "busy", "ServiceUnavailableException", "full [reason: queue_full]", 1000),
        error("unknown", 8, 404, "model-not-found", "ModelNotFoundException", "Model not found: x", 0),
    ],
    "bad_frames": [
        {"name": "kind-of-the-server", "hex": frame(ANSWER, 1).hex(), "error": "unknown-kind"},
        {"name": "no-kind", "hex": frame(0, 1).hex(), "error": "unknown-kind"},
        {"name": "flags", "hex": frame(CANCEL, 1, flags=1).hex(), "error": "unknown-flags"},
        {"name": "too-large", "hex": struct.pack("<IBBHQ", 2**31, CALL, 0, 0, 1).hex(), "error": "too-large"},
        {"name": "cancel-with-payload", "hex": frame(CANCEL, 1, b"x").hex(), "error": "malformed"},
        {"name": "short-head", "hex": frame(CALL, 1, b"\0" * 13).hex(), "error": "malformed"},
        {
            "name": "names-too-long",
            "hex": frame(CALL, 1, struct.pack("<IBBHHHH", 0, 0, 0, 9, 0, 0, 0)).hex(),
            "error": "malformed",
        },
        {
            "name": "not-utf-8",
            "hex": frame(CALL, 1, struct.pack("<IBBHHHH", 0, 0, 0, 1, 0, 0, 0) + b"\xff").hex(),
            "error": "malformed",
        },
        {"name": "priority", "hex": frame(CALL, 1, call_payload(b"", bulk=2)).hex(), "error": "malformed"},
        {
            "name": "claim",
            "hex": frame(CALL, 1, struct.pack("<IBBHHHH", 0, 0, 2, 0, 0, 0, 0)).hex(),
            "error": "malformed",
        },
        {
            "name": "short-claim",
            "hex": frame(CALL, 1, struct.pack("<IBBHHHHQ", 0, 0, 1, 0, 0, 0, 0, 5)).hex(),
            "error": "malformed",
        },
        {
            "name": "tenant-breaks-off",
            "hex": frame(CALL, 1, call_payload(b"", tenant="gold")[:-1]).hex(),
            "error": "malformed",
        },
        {
            "name": "tenant-too-long",
            "hex": frame(CALL, 1, call_payload(b"", tenant="x" * 129)).hex(),
            "error": "malformed",
        },
        {
            "name": "tenant-with-a-line",
            "hex": frame(CALL, 1, call_payload(b"", tenant="a\nb")).hex(),
            "error": "malformed",
        },
        {
            "name": "unknown-part",
            "hex": frame(CALL, 1, struct.pack("<IBBHHHH", 0, 0, 4, 0, 0, 0, 0)).hex(),
            "error": "malformed",
        },
        bad_headers("headers-break-off", header(b"a", b"1"), 9),
        bad_headers("header-breaks-off", header(b"a", b"1")[:-1]),
        bad_headers("header-name", header(b"a b", b"1")),
        bad_headers("header-with-a-line", header(b"a", b"1\n")),
    ],
    "values": [
        value("none", b"N", "None"),
        value("true", b"T", "True"),
        value("false", b"F", "False"),
        value("int", b"i" + struct.pack("<q", -5), "-5"),
        value("long", size(b"I", 9) + (2**64).to_bytes(9, "little", signed=True), str(2**64)),
        value("float", b"f" + struct.pack("<d", 0.5), "0.5"),
        value("text", text("grün"), "'grün'"),
        value("bytes", size(b"b", 2) + b"\0\xff", "b'\\x00\\xff'"),
        value("list", size(b"l", 2) + ONE + b"N", "[1, None]"),
        value("tuple", size(b"t", 1) + ONE, "(1,)"),
        value("dict", size(b"d", 1) + text("a") + size(b"l", 0), "{'a': []}"),
    ],
    "bad_values": [
        {"name": "nothing", "hex": ""},
        {"name": "unknown-kind", "hex": b"?".hex()},
        {"name": "left-over", "hex": b"NN".hex()},
        {"name": "short-int", "hex": b"i1".hex()},
        {"name": "short-text", "hex": (size(b"s", 5) + b"abc").hex()},
        {"name": "not-utf-8", "hex": (size(b"s", 1) + b"\xff").hex()},
        {"name": "count-without-values", "hex": size(b"l", 2**32 - 1).hex()},
        {"name": "list-as-key", "hex": (size(b"d", 1) + size(b"l", 0) + b"N").hex()},
        {"name": "too-deep", "hex": (size(b"l", 1) * 65 + b"N").hex()},
        {"name": "array-of-objects", "hex": (b"a\x02|O\x01" + struct.pack("<Q", 1) + b"\0" * 8).hex()},
        {"name": "array-breaks-off", "hex": (b"a\x03<f4\x01" + struct.pack("<Q", 2**60)).hex()},
    ],
}

if __name__ == "__main__":
    path = Path(__file__).parents[2] / "protocol" / "handles.json"
    path.write_text(json.dumps(VECTORS, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
