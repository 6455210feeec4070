"""The shared vectors of protocol/vectors.json, both directions, and the frame reader's manners."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import struct
import threading

import pytest
import wire

from jitney.http.float_fields import FloatFields
from jitney.torchserve.bodies import read_bytes
from jitney.values.tensor import RawTensor
from jitney.worker import protocol
from jitney.worker.batch import BatchDecoder, read_headers, read_request_id
from jitney.worker.context import ItemProcessor, WorkerContext
from jitney.worker.protocol import POSITION, Frame, FrameReader, decode_control, encode_control, send_frame
from jitney.worker.reply import encode_reply
from jitney.worker.requests import read_batch_size, read_facts
from jitney.worker.writer import FrameWriter, assemble_parts, encode_meta, encode_tensors, table_of

with open(wire.VECTORS_PATH, encoding="utf-8") as file:
    VECTORS = json.load(file)
GOOD = {vector["name"]: vector for vector in VECTORS["good"]}
FACTS = ("deadline_ms", "batch_size", "origin", "priority")
OF_PARAMETERS = [name for name in GOOD if "of tensors" not in name and "numbers" not in name]
BAD = {vector["name"]: vector for vector in VECTORS["bad"]}
ERRORS = {
    "unknown-kind": protocol.UnknownKind,
    "unknown-flags": protocol.UnknownFlags,
    "too-large": protocol.TooLarge,
    "truncated": protocol.Truncated,
    "malformed": protocol.Malformed,
}


def frames_of(data: bytes) -> list[Frame]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        return list(iter(FrameReader(theirs).read, None))


def sent(kind: int, count: int, frame_id: int, parts: list[bytes]) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_frame(ours, kind, count, frame_id, parts)
        ours.shutdown(socket.SHUT_WR)
        return theirs.makefile("rb").read()


@pytest.mark.parametrize("name", GOOD)
def test_a_good_frame_has_its_kind_count_and_id(name):
    vector = GOOD[name]
    (frame,) = frames_of(bytes.fromhex(vector["hex"]))
    assert (frame.kind, frame.count, frame.id) == (vector["kind"], vector["count"], vector["id"])


@pytest.mark.parametrize("name", [n for n, v in GOOD.items() if v["kind"] in protocol.CONTROL_KINDS])
def test_a_control_frame_is_its_json_object_both_ways(name):
    vector = GOOD[name]
    (frame,) = frames_of(bytes.fromhex(vector["hex"]))
    assert decode_control(frame.payload) == vector["decoded"]
    encoded = sent(vector["kind"], 0, vector["id"], [encode_control(vector["decoded"])])
    assert encoded == bytes.fromhex(vector["hex"])


@pytest.mark.parametrize("name", [n for n in OF_PARAMETERS if GOOD[n]["kind"] == wire.BATCH])
def test_a_batch_decodes_to_its_items(name):
    vector = GOOD[name]
    (frame,) = frames_of(bytes.fromhex(vector["hex"]))
    rows, metas = BatchDecoder(read_bytes).decode(frame.payload, frame.count)
    expected = vector["decoded"]["items"]
    assert [read_request_id(meta) for meta in metas] == [item["id"] for item in expected]
    assert rows == [{p["name"]: bytes.fromhex(p["value_hex"]) for p in item["params"]} for item in expected]
    for meta, item in zip(metas, expected):
        types = {p["name"]: {"content-type": p["content_type"]} for p in item["params"]}
        assert read_headers(meta) == {**dict(item["headers"]), **types}
        left, told = item["deadline_ms"], (item["origin"], None, item["priority"])
        assert read_facts(meta, 7.0) == (None if left is None else 7.0 + left / 1000, *told)
        assert read_batch_size(meta) == item["batch_size"]


@pytest.mark.parametrize(
    "name", [n for n in OF_PARAMETERS if GOOD[n]["kind"] == wire.BATCH and "decode_only" not in GOOD[n]]
)
def test_a_batch_encodes_to_its_bytes(name):
    vector = GOOD[name]
    items = [
        wire.item(
            [(p["name"], p["content_type"], bytes.fromhex(p["value_hex"])) for p in item["params"]],
            item["headers"],
            item["id"],
            **{name: item[name] for name in FACTS},
        )
        for item in vector["decoded"]["items"]
    ]
    assert wire.batch(items, vector["id"]) == bytes.fromhex(vector["hex"])


@pytest.mark.parametrize("name", [n for n in OF_PARAMETERS if GOOD[n]["kind"] == wire.REPLY])
def test_a_reply_encodes_to_its_bytes(name):
    vector = GOOD[name]
    context = WorkerContext("m", "/", {}, 1, None, "")
    context.bind_batch([b"\0" * 16] * vector["count"])
    outputs = [answer(idx, item, context) for idx, item in enumerate(vector["decoded"]["items"])]
    data = sent(wire.REPLY, len(outputs), vector["id"], encode_reply(outputs, context))
    assert data == bytes.fromhex(vector["hex"])


def answer(idx: int, item: dict, context: WorkerContext) -> object:
    """Does what a handler would do to get this item; failing ones by the two ways there are."""
    if item["outcome"] == 1 and item["cause"] == 6:
        return object()
    status = 70_000 if item["outcome"] == 1 else item["status"]
    context.set_response_status(status, item["phrase"], idx)
    for name, value in item["headers"]:
        context.set_response_header(idx, name, value)
    return bytes.fromhex(item["body_hex"])


@pytest.mark.parametrize("name", [n for n, v in GOOD.items() if v["kind"] == wire.REPLY])
def test_a_reply_decodes_to_its_items(name):
    vector = GOOD[name]
    (frame,) = frames_of(bytes.fromhex(vector["hex"]))
    items = wire.decode_reply(bytes(frame.payload), frame.count)
    expected = [{key: value for key, value in item.items() if key != "written"} for item in vector["decoded"]["items"]]
    assert [spelt(item) for item in items] == expected


def spelt(item: dict) -> dict:
    """An item as the vectors have it."""
    body = item.pop("body").hex()
    if "tensors" not in item:
        return {"body_hex": body, **item}
    return {**item, "tensors": [{"value_hex": one.pop("value").hex(), **one} for one in item["tensors"]]}


def test_tensors_are_read_where_they_lie_and_written_as_the_vectors_say():
    vector = GOOD["batch of tensors"]
    (frame,) = frames_of(bytes.fromhex(vector["hex"]))
    rows, metas = BatchDecoder().decode(frame.payload, frame.count)
    expected = vector["decoded"]["items"]
    assert [(told(row), row.outputs) for row in rows] == [(item["tensors"], item["outputs"]) for item in expected]
    assert [read_headers(meta) for meta in metas] == [dict(item["headers"]) for item in expected]
    vector = GOOD["reply of tensors"]
    items = []
    for item in vector["decoded"]["items"]:
        tensors = [
            (t["name"], RawTensor(t["datatype"], t["shape"], bytes.fromhex(t["value_hex"]))) for t in item["tensors"]
        ]
        items.append((encode_tensors(200, dict(item["headers"]), tensors), [tensor.data for _, tensor in tensors]))
    assert sent(wire.REPLY, len(items), vector["id"], assemble_parts(items)) == bytes.fromhex(vector["hex"])


def test_numbers_are_taken_out_of_json_as_the_vectors_say():
    numpy = pytest.importorskip("numpy")
    vector = GOOD["reply with numbers taken out"]
    rows = [numpy.array(some, dtype="float32") for some in ((0.1, -1.0, 1e-7, 3.0), (16777216.0,), (-0.25, 1e20))]
    outputs = [FloatFields(v=rows[0], w=[*rows[1:], []], n=2), FloatFields()]
    assert [json.loads(item["written"]) for item in vector["decoded"]["items"]] == [
        {"v": [0.1, -1, 1e-7, 3], "w": [[16777216], [-0.25, 1e20], []], "n": 2},
        {},
    ]
    for output, item in zip(outputs, vector["decoded"]["items"]):
        parts, last = output.parts()
        assert [[len(text), len(numbers)] for text, numbers in parts] == item["lengths"]
        assert b"".join(one for part in parts for one in part) + last == bytes.fromhex(item["body_hex"])
    grid = FloatFields(grid=numpy.ones((2, 1), dtype="float16")).parts()
    assert grid == ([(b'{"grid":[[', b"\0\0\x80?"), (b"],[", b"\0\0\x80?")], b"]]}")
    shapes = [(3,), (1, 1), (2, 3), (2, 3, 4), (3, 1, 2), (1, 2, 3, 2, 2), (2, 0), (0, 3), (1, 0, 2)]
    for array in (numpy.arange(math.prod(shape), dtype="float32").reshape(shape) for shape in shapes):
        parts, last = FloatFields(x=array).parts()
        written = (text + json.dumps(struct.unpack(f"<{len(some) // 4}f", some))[1:-1].encode() for text, some in parts)
        whole = b"".join(written)
        assert json.loads(whole + last) == {"x": array.tolist()}
    precise = FloatFields(one=numpy.ones((), dtype="float32"), two=numpy.full((1, 2), 0.1), labels=numpy.array([3]))
    assert precise.parts() == ([], b'{"one":1.0,"two":[[0.1,0.1]],"labels":[3]}')


def told(row: dict) -> list[dict]:
    return [
        {"name": n, "datatype": t.datatype, "shape": list(t.shape), "value_hex": t.data.hex()} for n, t in row.items()
    ]


@pytest.mark.parametrize("name", [n for n, v in GOOD.items() if v["kind"] == wire.CHUNK])
def test_a_chunk_encodes_to_its_bytes_and_decodes_to_its_pieces(name):
    vector = GOOD[name]
    context = WorkerContext("m", "/", {}, 1, None, "")
    pieces = vector["decoded"]["items"]
    context.bind_batch([b"\0" * 16] * 400, vector["id"])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        context.frame_writer = FrameWriter(ours)
        outputs = {}
        for piece in pieces:
            outputs[piece["position"]] = answer(piece["position"], piece, context)
            context.streamed.add(piece["position"])  # The stream header is the vector's business here.
        parts = [(POSITION.pack(at) + encode_meta(context._request(at)), body) for at, body in outputs.items()]
        context.frame_writer.send_chunk(vector["id"], len(parts), table_of(parts))
        ours.shutdown(socket.SHUT_WR)
        assert theirs.makefile("rb").read() == bytes.fromhex(vector["hex"])
    (frame,) = frames_of(bytes.fromhex(vector["hex"]))
    decoded = wire.decode_chunk(bytes(frame.payload), frame.count)
    assert [{"body_hex": piece.pop("body").hex(), **piece} for piece in decoded] == pieces


def understood(data: bytes) -> None:
    """Reads a stream the way a worker would, down to the last field."""
    for frame in frames_of(data):
        if frame.kind in protocol.CONTROL_KINDS:
            decode_control(frame.payload)
        elif frame.kind == wire.BATCH:
            for meta in BatchDecoder().decode(frame.payload, frame.count)[1]:
                ItemProcessor(meta).get_request_properties()
                read_facts(meta, 0.0)


@pytest.mark.parametrize("name", [n for n in BAD if not n.startswith(("reply", "chunk"))])
def test_a_bad_frame_is_rejected_with_its_error(name):
    with pytest.raises(ERRORS[BAD[name]["error"]]):
        understood(bytes.fromhex(BAD[name]["hex"]))


@pytest.mark.parametrize("name", [n for n in BAD if n.startswith(("reply", "chunk"))])
def test_a_bad_reply_is_rejected_by_the_tests_own_server(name):
    (frame,) = frames_of(bytes.fromhex(BAD[name]["hex"]))
    with pytest.raises(Exception):  # noqa: B017 - the helper only asserts; the classes are the Rust side's
        decode = wire.decode_chunk if frame.kind == wire.CHUNK else wire.decode_reply
        decode(bytes(frame.payload), frame.count)


def test_frames_fed_byte_by_byte_are_read_whole():
    data = b"".join(bytes.fromhex(vector["hex"]) for vector in GOOD.values())
    ours, theirs = socket.socketpair()
    reader = FrameReader(theirs)

    def feed():
        for byte in data:
            ours.send(bytes((byte,)))
        ours.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    frames = list(iter(reader.read, None))
    feeder.join()
    theirs.close()
    again = b"".join(wire.frame(f.kind, bytes(f.payload), f.count, f.id) for f in frames)
    assert again == data


def test_small_and_large_frames_may_follow_each_other():
    sizes = [0, 5, 70_000, 16, (1 << 20) + 1, 3, 1 << 20, 1, 3 << 20, 0]
    ours, theirs = socket.socketpair()
    data = b"".join(wire.frame(wire.REPLY, bytes([n % 251]) * n, 0, i) for i, n in enumerate(sizes))
    feeder = threading.Thread(target=lambda: (ours.sendall(data), ours.close()))
    feeder.start()
    frames = list(iter(FrameReader(theirs).read, None))
    feeder.join()
    theirs.close()
    assert [(f.id, f.payload == bytes([n % 251]) * n) for f, n in zip(frames, sizes)] == [
        (i, True) for i in range(len(sizes))
    ]


def test_a_payload_stays_the_same_when_the_next_frame_is_read():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = FrameReader(theirs)
        ours.sendall(wire.frame(wire.REPLY, b"first"))
        first = reader.read()
        ours.sendall(wire.frame(wire.REPLY, b"other"))
        assert (reader.read().payload, first.payload) == (b"other", b"first")


def test_a_large_reply_of_many_parts_survives_partial_sends():
    parts = [bytes([i % 256]) * (i % 5000) for i in range(3000)]
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    received = []
    reader = threading.Thread(target=lambda: received.append(FrameReader(theirs).read()))
    reader.start()
    with ours:
        send_frame(ours, wire.REPLY, 0, 77, parts)
    reader.join()
    theirs.close()
    assert (received[0].id, bytes(received[0].payload)) == (77, b"".join(parts))


BODIES = [b"a" * (1 << 20), b"", b"b" * 70_000, b"short", b"c" * (3 << 20)]


def large_batch(content_type: str = "") -> bytes:
    """A batch with large bodies, and last an item with two parameters."""
    form = wire.item([("first", "", b"d" * 40_000), ("second", content_type, b"e" * 5)])
    return wire.batch([*wire.bodies(*BODIES, content_type=content_type), form], 9)


def test_large_bodies_arrive_each_in_a_buffer_of_its_own_and_the_next_frame_after_them():
    ours, theirs = socket.socketpair()
    after = wire.batch(wire.bodies(b"after"), 10)
    feeder = threading.Thread(target=lambda: (ours.sendall(large_batch() + after), ours.close()))
    feeder.start()
    reader = FrameReader(theirs)
    frame, last = reader.read(), reader.read()
    feeder.join()
    theirs.close()
    rows, metas = BatchDecoder().decode(frame.payload, frame.count)
    assert rows == [*({"body": body} for body in BODIES), {"first": b"d" * 40_000, "second": b"e" * 5}]
    assert {type(row["body"]) for row in rows[:-1]} == {bytearray}
    assert [read_request_id(meta) for meta in metas] == ["r0", "r1", "r2", "r3", "r4", "r"]
    assert wire.frame(frame.kind, b"".join(frame.parts()), frame.count, frame.id) == large_batch()
    assert BatchDecoder().decode(last.payload, last.count)[0] == [{"body": b"after"}]


def test_a_large_body_of_text_or_json_is_read_by_its_type():
    text, value = b"x" * 100_000, json.dumps(list(range(30_000))).encode()
    items = [*wire.bodies(text, content_type="text/plain"), *wire.bodies(value, content_type="application/json")]
    frames = frames_in_background(wire.batch(items))
    assert BatchDecoder().decode(frames[0].payload, 2)[0] == [{"body": text.decode()}, {"body": list(range(30_000))}]


@pytest.mark.parametrize(("at", "error"), [(0, protocol.Malformed), (8, protocol.Malformed)])
def test_a_large_batch_whose_lengths_do_not_add_up_is_malformed(at, error):
    data = bytearray(large_batch())
    data[16 + at] += 1  # The length of a meta, or of a body.
    with pytest.raises(error):
        frames_in_background(bytes(data))


def test_a_large_batch_that_breaks_off_is_truncated():
    with pytest.raises(protocol.Truncated):
        frames_in_background(large_batch()[:-1])


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """A connection as a worker on another machine has it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


def test_large_bodies_arrive_over_tcp_too():
    (frame,) = frames_in_background(large_batch(), tcp_pair)
    assert b"".join(frame.parts()) == large_batch()[16:]


def frames_in_background(data: bytes, connect=socket.socketpair) -> list[Frame]:
    """Like `frames_of`, for more than a socket holds."""
    ours, theirs = connect()

    def feed() -> None:
        with ours, contextlib.suppress(OSError):
            ours.sendall(data)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        return list(iter(FrameReader(theirs).read, None))
    finally:
        theirs.close()
        feeder.join()
