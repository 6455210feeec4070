"""A definition inside the real worker loop: what is on the wire for it."""

from __future__ import annotations

import json

import pytest
import wire

from jitney.calls import VALUE_TYPE, encode_call
from jitney.values import encode

SOURCE = """
import jitney

class Model:
    @jitney.batch(max_batch_size=8)
    def half(self, x: list[int], request: list[jitney.Request]) -> list[int]:
        for one in request:
            one.response_headers["X-Who"] = one.headers["who"]
        return [one // 2 if one % 2 == 0 else jitney.BadInput(f"{one} is odd") for one in x]

    @jitney.batch
    def boom(self, x: list[int]) -> list[int]:
        raise KeyError("boom")

    @jitney.endpoint
    def picture(self, request: jitney.Request) -> bytes:
        request.response_headers["content-type"] = "image/png"
        return b"png"

    @jitney.endpoint
    def spell(self, word: str):
        yield from word

    def teardown(self):
        open("torn-down", "w").close()
"""


@pytest.fixture
def defined(worker, model, tmp_path):
    settings = {"jitney": {"object": "defined_app:Model", "directory": str(tmp_path)}}
    model(SOURCE, "defined_app.py")
    return worker("", "defined_app:Model", model_yaml_config=settings)


def item(path: str, body: object, who: str = "me") -> tuple[bytes, bytes]:
    params = [("body", "application/json", json.dumps(body).encode())]
    return wire.item(params, [("who", who), ("url_path", path)])


def test_every_item_is_answered_with_its_own_type_headers_and_failure(defined):
    good, bad, lost = defined.ask([item("half", 4, "a"), item("half", {"x": 3}, "b"), item("nowhere", 1)])
    assert (good["body"], good["status"]) == (b"2", 200)
    assert good["headers"] == [["Content-Type", "application/json"], ["X-Who", "a"]]
    assert (bad["outcome"], bad["status"], bad["body"]) == (1, 400, b"3 is odd")
    assert (lost["outcome"], lost["status"]) == (1, 404)
    assert b"it has: half, boom, picture, spell" in lost["body"]


def test_a_batch_that_raises_fails_as_a_whole_and_an_item_alone_by_itself(defined):
    assert defined.ask([item("boom", 1), item("boom", 2)])["cause"] == "raised"
    (alone,) = defined.ask([item("boom", 1)])
    assert (alone["outcome"], alone["status"], alone["body"]) == (1, 500, b"KeyError: 'boom'")


def test_a_model_chooses_its_content_type_and_a_handle_still_reads_a_value(defined):
    (browser,) = defined.ask([item("picture", {})])
    assert (browser["headers"], browser["body"]) == ([["Content-Type", "image/png"]], b"png")
    (handle,) = defined.ask([wire.item([("jitney-call", "", encode_call((), {}))], [("url_path", "picture")])])
    assert (handle["headers"], handle["body"]) == ([["Content-Type", VALUE_TYPE]], encode(b"png"))


def test_pieces_of_a_stream_are_sent_one_by_one(defined):
    defined.send(wire.batch([item("spell", "ab")]))
    pieces = []
    for _ in "ab":
        kind, count, _, payload = defined.read()
        assert kind == wire.CHUNK
        pieces += wire.decode_chunk(payload, count)
    assert [piece["body"] for piece in pieces] == [b"a", b"b"]
    assert pieces[0]["headers"] == [["Content-Type", "text/plain; charset=utf-8"]]
    kind, count, _, payload = defined.read()
    assert (kind, wire.decode_reply(payload, count)[0]["body"]) == (wire.REPLY, b"")


def test_teardown_is_called_when_the_worker_ends(defined, tmp_path):
    defined.send(wire.control(wire.STOP))
    assert defined.ended()
    assert (tmp_path / "torn-down").exists()
