"""What a handler sees of its requests."""

from __future__ import annotations

import json

import pytest
import wire

from jitney.torchserve import bodies
from jitney.worker.batch import KNOWN_NAMES_LIMIT, BatchDecoder, Headers

INSPECT = """
    import json

    def show(value):
        if isinstance(value, (bytes, bytearray)):
            value = bytes(value).hex()
        return value

    def handle(data, context):
        return [json.dumps({
            "params": {k: [type(v).__name__, show(v)] for k, v in row.items()},
            "headers": context.get_all_request_header(i),
            "id": context.get_request_id(i),
            "lookup": context.get_request_header(i, "x-mixed"),
            "ids": context.request_ids,
            "processors": len(context.request_processor),
            "n": len(data),
        }) for i, row in enumerate(data or ())]
"""


def inspect(worker, *items):
    return [json.loads(answer["body"]) for answer in worker.ask(list(items))]


@pytest.mark.parametrize(
    "content_type, body, kind, value",
    [
        ("", b"\x00\x01abc", "bytearray", b"\x00\x01abc".hex()),
        ("application/octet-stream", b"\xff\xfe", "bytearray", "fffe"),
        ("text/plain", "grüß".encode(), "str", "grüß"),
        ("text/csv", b"1,2", "str", "1,2"),
        ("text/plain", b"\xff\xfe\x00", "bytearray", "fffe00"),
        ("application/json", b'{"a": [1, 2.5]}', "dict", {"a": [1, 2.5]}),
        ("application/json", b" \n[1]\r\n\t ", "list", [1]),
        ("application/json", b'{"a": 1}\n', "dict", {"a": 1}),
        ("application/json", b"\xef\xbb\xbf[1]", "list", [1]),
        ("application/json", '["é"]'.encode("utf-16-le"), "list", ["é"]),
        ("application/json", b'"s"', "str", "s"),
        ("application/json", b"12", "int", 12),
        ("application/json", b"null", "NoneType", None),
        ("application/json", b"{broken", "bytearray", b"{broken".hex()),
        ("application/json", b"[1] x", "bytearray", b"[1] x".hex()),
        ("application/json", b"\xff\xff", "bytearray", "ffff"),
        ("application/json", b"", "bytearray", ""),
        ("application/json", b"[" * 100_000, "bytearray", (b"[" * 100_000).hex()),
        ("application/json; charset=utf-8", b"[1]", "bytearray", b"[1]".hex()),
        ("application/vnd.api+json", b"{}", "bytearray", b"{}".hex()),
    ],
)
def test_a_value_is_decoded_by_its_content_type(worker, content_type, body, kind, value):
    (seen,) = inspect(worker(INSPECT), wire.item([("body", content_type, body)]))
    assert seen["params"] == {"body": [kind, value]}


def test_a_value_that_cannot_be_decoded_is_logged(caplog, monkeypatch):
    monkeypatch.setitem(bodies._silence, "until", 0.0)  # Other tests have sent such bodies too.
    item = wire.item([("body", "application/json", b"{broken secret")])
    BatchDecoder().decode(wire.table([item]), 1)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "secret" not in record.getMessage()


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", ""])
def test_with_decoding_off_every_value_is_a_bytearray(worker, content_type):
    (seen,) = inspect(worker(INSPECT, decode_input=False), wire.item([("body", content_type, b"[1]")]))
    assert seen["params"] == {"body": ["bytearray", b"[1]".hex()]}
    assert seen["headers"]["body"] == {"content-type": content_type}


def test_each_parameter_is_decoded_by_its_own_type_and_the_last_of_a_name_wins(worker):
    params = [
        ("data", "text/plain", b"one"),
        ("größe", "", b""),
        ("doc", "application/json", b'{"k": 1}'),
        ("data", "", b"two"),
    ]
    (seen,) = inspect(worker(INSPECT), wire.item(params))
    assert seen["params"] == {
        "data": ["bytearray", b"two".hex()],
        "größe": ["bytearray", ""],
        "doc": ["dict", {"k": 1}],
    }


def test_headers_ids_and_content_types_belong_to_their_request(worker):
    items = [
        wire.item([("body", "text/plain", b"a")], [("X-Mixed", "1"), ("x-empty", "")], "id-0"),
        wire.item([("data", "", b"b"), ("more", "image/png", b"c")], [("X-Mixed", "2")], "id-1"),
        wire.item([], [], ""),
    ]
    first, second, third = inspect(worker(INSPECT), *items)
    assert first["headers"] == {"X-Mixed": "1", "x-empty": "", "body": {"content-type": "text/plain"}}
    assert second["headers"] == {
        "X-Mixed": "2", "data": {"content-type": ""}, "more": {"content-type": "image/png"},
    }  # fmt: skip
    assert third["headers"] == {} and third["params"] == {}
    assert [seen["lookup"] for seen in (first, second, third)] == ["1", "2", None]
    assert first["ids"] == {"0": "id-0", "1": "id-1", "2": ""}
    assert (first["id"], second["id"], first["n"], first["processors"]) == ("id-0", "id-1", 3, 3)


def test_a_bytearray_is_the_handlers_own_to_change(worker):
    one = worker("""
        KEPT = []

        def handle(data, context):
            for row in data or ():
                row["body"] += b"!"
                KEPT.append(row["body"])
            return [bytes(KEPT[0]) for _ in data or ()]
    """)
    assert [one.ask(wire.bodies(body))[0]["body"] for body in (b"first", b"2nd", b"third")] == [b"first!"] * 3


def test_an_8_mib_body_arrives_whole_beside_a_small_one(worker):
    one = worker("""
        def handle(data, context):
            return [row["body"] for row in data or ()]
    """)
    large = bytes(range(256)) * (8 << 12)
    answers = one.ask(wire.bodies(large, b"small", large[::-1]))
    assert [answer["body"] for answer in answers] == [large, b"small", large[::-1]]


def test_request_headers_are_found_in_any_spelling_and_keep_the_one_sent():
    headers = Headers({"X-Color": "blue", "Accept": "a", "accept": "b"})
    assert headers["x-color"] == headers["X-COLOR"] == headers.get("x-Color") == "blue"
    assert "x-COLOR" in headers and "x-shape" not in headers and 7 not in headers
    assert (headers["Accept"], headers["accept"], headers["ACCEPT"]) == ("a", "b", "b")
    assert headers.get("none") is None and headers.get("none", 1) == 1
    with pytest.raises(KeyError):
        headers["none"]
    assert json.dumps(headers) == '{"X-Color": "blue", "Accept": "a", "accept": "b"}'
    assert list(headers) == ["X-Color", "Accept", "accept"] and isinstance(headers, dict)


def test_parameter_names_chosen_by_clients_do_not_fill_the_memory():
    decoder = BatchDecoder()
    for i in range(3 * KNOWN_NAMES_LIMIT):
        rows, _ = decoder.decode(wire.table([wire.item([(f"field-{i}", "", b"v")])]), 1)
        assert rows == [{f"field-{i}": b"v"}]
    assert len(decoder._known) <= KNOWN_NAMES_LIMIT
