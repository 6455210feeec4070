"""Writes protocol/vectors.json: `python tests/make_vectors.py`. Deterministic; run it only to add vectors.

The JSON file is the truth that Rust and Python test against. This script spells frames with
`wire`, which shares no code with the worker's codec.
"""

from __future__ import annotations

import json
import struct

import wire

LOAD_FIELDS = wire.load_spec(
    "/models/cat", "handler.py:grüßen", gpu_id=1, model_yaml_config={"handler": {"layers": [1, 2]}}
)


def control(name, kind, decoded, frame_id=0):
    return good(name, wire.control(kind, decoded, frame_id), kind, 0, frame_id, decoded)


def good(name, data, kind, count, frame_id, decoded, **extra):
    return {"name": name, "kind": kind, "count": count, "id": frame_id, "hex": data.hex(), "decoded": decoded, **extra}


def told(facts=None):
    """What is known of a call."""
    return {"deadline_ms": None, "batch_size": 0, "origin": "http", "priority": "interactive", **(facts or {})}


def batch(name, items, frame_id):
    """Items are (request id, headers, params), and perhaps what else is known of the call."""
    decoded = [
        {"id": request_id, "headers": [list(pair) for pair in headers], **told(*facts), "params": [
            {"name": n, "content_type": t, "value_hex": v.hex()} for n, t, v in params]}
        for request_id, headers, params, *facts in items
    ]  # fmt: skip
    made = [wire.item(params, headers, request_id, **told(*facts)) for request_id, headers, params, *facts in items]
    data = wire.batch(made, frame_id)
    return good(name, data, wire.BATCH, len(items), frame_id, {"items": decoded})


def reply(name, items, frame_id):
    """Items are (outcome, cause, status, phrase, headers, body)."""
    pairs, decoded = [], []
    for outcome, cause, status, phrase, headers, body in items:
        meta = b""
        if (outcome, status, phrase, headers) != (0, 200, "", []):
            meta = struct.pack("<BBHHH", outcome, cause, status, len(phrase.encode()), len(headers)) + phrase.encode()
            meta += b"".join(wire.field(n, v) for n, v in headers)
        pairs.append((meta, body))
        decoded.append({"outcome": outcome, "cause": cause, "status": status, "phrase": phrase,
                        "headers": [list(pair) for pair in headers], "body_hex": body.hex()})  # fmt: skip
    data = wire.frame(wire.REPLY, wire.table(pairs), len(items), frame_id)
    return good(name, data, wire.REPLY, len(items), frame_id, {"items": decoded})


def chunk(name, pieces, frame_id):
    """Pieces are (position, item); items as in a reply."""
    vector = reply(name, [item for _, item in pieces], frame_id)
    pairs = []
    for (position, _), item in zip(pieces, vector["decoded"]["items"]):
        meta = b""
        if (item["status"], item["phrase"], item["headers"]) != (200, "", []):
            phrase = item["phrase"].encode()
            meta = struct.pack("<BBHHH", 0, 0, item["status"], len(phrase), len(item["headers"])) + phrase
            meta += b"".join(wire.field(n, v) for n, v in item["headers"])
        pairs.append((struct.pack("<H", position) + meta, bytes.fromhex(item["body_hex"])))
        item["position"] = position
    data = wire.frame(wire.CHUNK, wire.table(pairs), len(pieces), frame_id)
    return {**vector, "kind": wire.CHUNK, "hex": data.hex()}


def tensor_batch(name, items, frame_id):
    """Items are (request id, headers, tensors, outputs); tensors are (name, datatype, shape, value)."""
    decoded = [
        {"id": request_id, "headers": [list(pair) for pair in headers], **told(), "params": [], "outputs": outputs,
         "tensors": [spelt(one) for one in tensors]}
        for request_id, headers, tensors, outputs in items
    ]  # fmt: skip
    made = [wire.tensors(tensors, outputs, headers, request_id) for request_id, headers, tensors, outputs in items]
    return good(name, wire.batch(made, frame_id), wire.BATCH, len(items), frame_id, {"items": decoded})


def spelt(tensor):
    name, datatype, shape, value = tensor
    return {"name": name, "datatype": datatype, "shape": list(shape), "value_hex": value.hex()}


def tensor_reply(name, answers, frame_id):
    """Answers are (headers, tensors)."""
    pairs, decoded = [], []
    for headers, tensors in answers:
        meta = struct.pack("<BBHHH", 2, 0, 200, 0, len(headers)) + b"".join(wire.field(n, v) for n, v in headers)
        meta += struct.pack("<H", len(tensors)) + b"".join(wire.entry(*one) for one in tensors)
        pairs.append((meta, b"".join(value for *_, value in tensors)))
        answer = {"outcome": 2, "cause": 0, "status": 200, "phrase": "", "headers": [list(pair) for pair in headers]}
        decoded.append({**answer, "tensors": [spelt(one) for one in tensors]})
    data = wire.frame(wire.REPLY, wire.table(pairs), len(answers), frame_id)
    return good(name, data, wire.REPLY, len(answers), frame_id, {"items": decoded})


def number_reply(name, answers, frame_id):
    """Answers are (headers, texts, numbers, written): numbers stand between the texts."""
    pairs, decoded = [], []
    for headers, texts, numbers, written in answers:
        raw = [struct.pack(f"<{len(some)}f", *some) for some in numbers]
        meta = struct.pack("<BBHHH", 3, 0, 200, 0, len(headers)) + b"".join(wire.field(n, v) for n, v in headers)
        meta += struct.pack("<I", len(raw)) + b"".join(struct.pack("<2I", len(t), len(r)) for t, r in zip(texts, raw))
        pairs.append((meta, b"".join(t + r for t, r in zip(texts, raw)) + texts[-1]))
        answer = {"outcome": 3, "cause": 0, "status": 200, "phrase": "", "headers": [list(pair) for pair in headers]}
        lengths = [[len(t), len(r)] for t, r in zip(texts, raw)]
        decoded.append({**answer, "body_hex": pairs[-1][1].hex(), "lengths": lengths, "written": written.decode()})
    data = wire.frame(wire.REPLY, wire.table(pairs), len(answers), frame_id)
    return good(name, data, wire.REPLY, len(answers), frame_id, {"items": decoded})


def plain(body):
    return 0, 0, 200, "", [], body


def latin1_header():
    meta = wire.head(0, 0, [("x-old", b"caf\xe9")])
    decoded = {"items": [{"id": "r", "headers": [["x-old", "café"]], **told(), "params": []}]}
    return good(
        "batch header value that is not utf-8", wire.batch([(meta, b"")], 13), 5, 1, 13, decoded, decode_only=True
    )


FLOATS = struct.pack("<6f", 0.5, -1, 2, 3e38, float("inf"), -0.0)
STRINGS = b"".join(struct.pack("<I", len(one)) + one for one in (b"tea", b"", "né".encode()))

GOOD = [
    control("hello", 1, {"protocol": 3, "token": "s3cret", "pid": 123, "python": "3.11.7"}),
    control("load", 2, LOAD_FIELDS),
    control("load of a model with sizes, lengths and a share of its GPU", 2, {
        **LOAD_FIELDS, "sizes": [1, 2, 4], "lengths": [32, 64], "compile_cache": "/models/.compiled/0a1b",
        "gpu_memory_fraction": 0.5, "gpu_turns": "/run/gpu-1.lock",
    }),
    control("loaded", 3, {"seconds": 0.125}),
    control("loaded with what warming up found", 3, {
        "seconds": 2.5, "slots": 3, "sizes": [1, 2, 4], "measured": [[1, 900, 2650], [4, 1000, 2720, 128]],
        "graphs": {"count": 3, "bytes": 2**34}, "gpu_memory_bytes": 2**35, "notes": ["no graph at größe 8"],
    }),
    control("loaded with an empty payload", 3, {}),
    control("load failed", 4, {"cause": "memory", "message": "MemoryError: no room für alle"}),
    batch("batch of one", [("r1", [("Accept", "*/*")], [("body", "application/json", b'{"a": 1}')])], 1),
    batch("batch of two with several headers, parameters and empty values", [
        ("0f8fad5b-d9cb-469f-a165-70867728950e",
         [("X-Op", "echo"), ("x-empty", ""), ("x-unicode", "grüße 世界"), ("explain", "False")],
         [("data", "image/png", b"\x89PNG\x00\xff"), ("größe", "", b""), ("note", "text/plain", "né".encode())]),
        ("", [], [("body", "", b"\x00" * 9)]),
    ], 2**64 - 1),
    batch("batch item with an empty body", [("r", [], [("body", "text/plain", b"")])], 7),
    batch("batch item without parameters", [("r", [("a", "b")], [])], 8),
    batch("batch with a repeated parameter name", [("r", [], [("d", "", b"one"), ("d", "", b"two")])], 9),
    batch("batch of none", [], 10),
    batch("batch of calls of which more is known", [
        ("r1", [], [("body", "", b"1")], {"deadline_ms": 1500, "origin": "grpc", "priority": "bulk"}),
        ("r2", [], [("body", "", b"2")], {"batch_size": 12, "origin": "python"}),
        ("r3", [], [("body", "", b"3")], {"deadline_ms": 0}),
    ], 12),
    latin1_header(),
    tensor_batch("batch of tensors", [
        ("r1", [("x-mine", "1")], [("x", "FP32", (2, 3), FLOATS), ("größe", "INT64", (), b"\x07" + b"\0" * 7)],
         ["y", "größe"]),
        ("r2", [], [("text", "BYTES", (3,), STRINGS), ("mask", "BOOL", (0, 4), b"")], []),
        ("", [], [], []),
    ], 14),
    reply("reply with plain items", [plain(b"hello"), plain(b""), plain("世界".encode())], 1),
    reply("reply with a status", [(0, 0, 404, "", [], b"no")], 2),
    reply("reply with status, phrase and headers", [
        (0, 0, 418, "ich bin ein Kännchen",
         [("content-type", "text/html"), ("X-Größe", "ünï"), ("x-empty", "")], b"\x00\xff"),
        plain(b"plain neighbour"),
        (0, 0, 200, "OK", [], b""),
        (0, 0, 200, "", [("X-One", "1")], b"b"),
    ], 2**40),
    reply("reply with failed items", [
        plain(b"fine"),
        (1, 6, 503, "", [], b"Unsupported model output data type."),
        (1, 1, 503, "", [], b"Prediction failed"),
    ], 3),
    reply("reply of none", [], 10),
    tensor_reply("reply of tensors", [
        ([("x-greeted", "Änn")], [("y", "FP32", (3, 2), FLOATS), ("label", "BYTES", (3, 1), STRINGS)]),
        ([], []),
        ([], [("half", "FP16", (), b"\x00\x3c"), ("brain", "BF16", (1,), b"\x80\x3f"), ("none", "UINT8", (0,), b"")]),
    ], 11),
    number_reply("reply with numbers taken out", [
        ([("content-type", "application/json")], [b'{"v":[', b'],"w":[[', b"],[", b'],[]],"n":2}'],
         [(0.1, -1.0, 1e-7, 3.0), (16777216.0,), (-0.25, 1e20)],
         b'{"v":[0.1,-1.0,1e-7,3.0],"w":[[16777216.0],[-0.25,1e+20],[]],"n":2}'),
        ([], [b"{}"], [], b"{}"),
    ], 12),
    control("failed", 7, {"cause": "raised", "status": None, "message": "Prediction failed"}, 5),
    control("failed with a status", 7, {"cause": "prediction", "status": 599, "message": "seltsames Wetter ☂"}, 6),
    chunk("chunk of everybody's first pieces", [
        (0, plain(b"one ")),
        (1, (0, 0, 200, "", [("ts_stream_next", "true"), ("content-type", "text/event-stream")], "né ".encode())),
        (2, (0, 0, 202, "wait", [], b"")),
    ], 4),
    chunk("chunk for one of a batch", [(300, plain(b"\x00\xff"))], 2**33),
    chunk("chunk of none", [], 5),
    control("stop", 9, {}),
    control("times", 10, {"prepare_us": 8100, "model_us": 16800, "gpu_memory_bytes": 2**34}, 7),
    control("times with pauses", 10, {"gc_runs": 12, "gc_us": 4200, "gc_longest_us": 900}, 8),
    control("times with an empty payload", 10, {}, 2**64 - 1),
    control("cancel", 11, {}, 2**33),
    control("cancel of some of a batch", 11, {"positions": [1, 300]}, 12),
    control("progress", 12, {"done": 3, "of": 11, "what": "captured batch size 8"}),
    control("progress of an unknown number of steps", 12, {"done": 1, "what": "größe 8"}),
    control("share", 13, {"workers": 3}),
]  # fmt: skip

TENSORS, NUMBERS = (struct.pack("<BBHHH", outcome, 0, 200, 0, 0) for outcome in (2, 3))


def tensor_item(kind, value):
    """One tensor whose type is these bytes."""
    entry = struct.pack("<HHI", 1, len(kind), len(value)) + b"x" + kind
    return wire.head(1, 1, request_id="") + entry, value


def meta_of_call(origin, priority):
    return struct.pack("<BBHIIHBB", 0, 0, 0, 0, 1500, 0, origin, priority)


META = wire.head(1, 0) + struct.pack("<HHI", 4, 0, 3) + b"body"


def bad(name, data, error):
    return {"name": name, "hex": data.hex(), "error": error}


def batch_of(payload, count=1):
    return wire.frame(wire.BATCH, payload, count, 1)


def sized(meta_len, body_len, data):
    return batch_of(struct.pack("<II", meta_len, body_len) + data)


BAD = [
    bad("kind 0", wire.frame(0), "unknown-kind"),
    bad("kind 14", wire.frame(14), "unknown-kind"),
    bad("shared memory flag, reserved", wire.frame(wire.STOP, flags=1), "unknown-flags"),
    bad("flag bit 7", wire.frame(wire.BATCH, flags=128), "unknown-flags"),
    bad("length over the limit", struct.pack("<IBBHQ", (1 << 30) + 1, wire.BATCH, 0, 1, 1), "too-large"),
    bad("largest length", struct.pack("<IBBHQ", 2**32 - 1, wire.REPLY, 0, 1, 1), "too-large"),
    bad("end of stream in the header", wire.frame(wire.STOP)[:9], "truncated"),
    bad("end of stream in the payload", wire.control(wire.HELLO, {"protocol": 3})[:-1], "truncated"),
    bad("control frame with a count", wire.frame(wire.STOP, count=1), "malformed"),
    bad("times with a count", wire.frame(wire.TIMES, count=1), "malformed"),
    bad("cancel with a count", wire.frame(wire.CANCEL, count=1), "malformed"),
    bad("control payload is no JSON", wire.frame(wire.LOAD, b"{nope"), "malformed"),
    bad("control payload is no object", wire.frame(wire.LOAD, b"[1]"), "malformed"),
    bad("control payload is not utf-8", wire.frame(wire.LOAD, b'{"a":"\xff"}'), "malformed"),
    bad("batch without its table", batch_of(b""), "malformed"),
    bad("batch with a truncated table", batch_of(b"\x00" * 15, 2), "malformed"),
    bad("batch item past the payload", sized(len(META), 4, META + b"abc"), "malformed"),
    bad("batch with bytes left over", sized(len(META), 3, META + b"abcd"), "malformed"),
    bad("batch item meta too short", sized(15, 0, META[:15]), "malformed"),
    bad("batch parameter past the meta", sized(len(META) - 1, 3, META[:-1] + b"abc"), "malformed"),
    bad("batch parameter value longer than the body", sized(len(META), 2, META + b"ab"), "malformed"),
    bad("batch parameter missing", sized(17, 3, META[:17] + b"abc"), "malformed"),
    bad("batch body without a parameter", sized(17, 3, wire.head(0, 0) + b"abc"), "malformed"),
    bad("batch of a call of an unknown origin", batch_of(wire.table([(meta_of_call(3, 0), b"")])), "malformed"),
    bad("batch of a call of an unknown priority", batch_of(wire.table([(meta_of_call(0, 2), b"")])), "malformed"),
    bad("batch headers past the meta", sized(17, 0, struct.pack("<BBHIQ", 1, 0, 0, 50, 0) + b"r"), "malformed"),
    bad("batch header past its block",
        sized(23, 0, struct.pack("<BBHIQ", 0, 0, 0, 7, 0) + struct.pack("<HI", 1, 9) + b"x"), "malformed"),
    bad("batch output that is asked for with a value", batch_of(wire.table([tensor_item(b"", b"a")])), "malformed"),
    bad("batch tensor with a rank past its type",
        batch_of(wire.table([tensor_item(b"\x01FP32", b"abcd")])), "malformed"),
    bad("batch tensor of an unknown datatype", batch_of(wire.table([tensor_item(b"\x00FP8", b"a")])), "malformed"),
    bad("batch tensor that does not fill its shape",
        batch_of(wire.table([tensor_item(b"\x00FP32", b"abc")])), "malformed"),
    bad("batch tensor value past the body",
        batch_of(wire.table([(tensor_item(b"\x00FP32", b"abcd")[0], b"abc")])), "malformed"),
    bad("reply with a truncated table", wire.frame(wire.REPLY, b"\x00" * 4, 1, 1), "malformed"),
    bad("reply item past the payload", wire.frame(wire.REPLY, struct.pack("<II", 0, 5) + b"abcd", 1, 1), "malformed"),
    bad("reply with bytes left over", wire.frame(wire.REPLY, struct.pack("<II", 0, 1) + b"abcd", 1, 1), "malformed"),
    bad("reply meta too short", wire.frame(wire.REPLY, struct.pack("<II", 4, 0) + b"\x00" * 4, 1, 1), "malformed"),
    *[bad(f"reply whose taken numbers {name}", wire.frame(wire.REPLY, wire.table([(NUMBERS + meta, body)]), 1, 1),
          "malformed")
      for name, meta, body in (
        ("exceed it", struct.pack("<3I", 1, 1, 8), bytes(5)),
        ("are half a number", struct.pack("<3I", 1, 1, 6), bytes(9)),
        ("have no lengths", struct.pack("<I", 1), bytes(8)),
    )],
    bad("reply with an unknown outcome",
        wire.frame(wire.REPLY, struct.pack("<II", 8, 0) + struct.pack("<BBHHH", 4, 0, 200, 0, 0), 1, 1), "malformed"),
    *[bad(f"reply of tensors {name}", wire.frame(wire.REPLY, wire.table([(TENSORS + meta, body)]), 1, 1), "malformed")
      for name, meta, body in (
        ("without their number", b"", b""),
        ("that are fewer than it says", b"\x01\x00", b""),
        ("past the body", b"\x01\x00" + wire.entry("y", "UINT8", (4,), b"abcd"), b"abc"),
        ("with bytes left over", b"\x01\x00" + wire.entry("y", "UINT8", (4,), b"abcd"), b"abcde"),
        ("of an unknown datatype", b"\x01\x00" + wire.entry("y", "FP8", (4,), b"abcd"), b"abcd"),
        ("that do not fill their shape", b"\x01\x00" + wire.entry("y", "FP32", (2,), b"abcd"), b"abcd"),
        ("with a string cut off", b"\x01\x00" + wire.entry("y", "BYTES", (1,), b"\x02\0\0\0a"), b"\x02\0\0\0a"),
        ("with a rank past its type", b"\x01\x00" + struct.pack("<HHI", 1, 5, 0) + b"y\x01FP32", b""),
    )],
    bad("reply header past the meta",
        wire.frame(wire.REPLY, struct.pack("<II", 8, 0) + struct.pack("<BBHHH", 0, 0, 200, 0, 1), 1, 1), "malformed"),
    bad("chunk piece without a position", wire.frame(wire.CHUNK, struct.pack("<II", 0, 1) + b"a", 1, 1), "malformed"),
    bad("chunk piece with a short meta",
        wire.frame(wire.CHUNK, struct.pack("<II", 5, 0) + b"\x00" * 5, 1, 1), "malformed"),
    bad("chunk piece that failed",
        wire.frame(wire.CHUNK, struct.pack("<II", 10, 0) + struct.pack("<HBBHHH", 0, 1, 1, 503, 0, 0), 1, 1),
        "malformed"),
    bad("chunk of tensors",
        wire.frame(wire.CHUNK, wire.table([(b"\x00\x00" + TENSORS + b"\x00\x00", b"")]), 1, 1), "malformed"),
    bad("chunk with bytes left over",
        wire.frame(wire.CHUNK, struct.pack("<II", 2, 0) + b"\x00" * 3, 1, 1),
        "malformed"),
]  # fmt: skip


def main() -> None:
    with open(wire.VECTORS_PATH, "w", encoding="utf-8") as file:
        json.dump({"protocol": 3, "good": GOOD, "bad": BAD}, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
