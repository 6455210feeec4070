"""Raw endpoints: what they are told, what they may answer, and where they are found."""

from __future__ import annotations

import asyncio
import json
import os
import socket

import pytest
import wire

import jitney
from jitney.packing.pack import api
from jitney.wire.calls import encode_call
from jitney.wire.values import decode
from jitney.worker.writer import FrameWriter, TurnWriter

SOURCE = """
import jitney

class Model:
    @jitney.endpoint(raw=True)
    async def http(self, request):
        if isinstance(request, str):
            return request.upper()
        if request.path == "/stream":
            async def pieces():
                yield "a"
                yield ""
                yield b"b"
            return jitney.Response(pieces(), 201, [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")], "text/x")
        if request.path == "/kept":
            async def kept():
                for name in ("one", "two"):
                    yield name
                    open(name).close()  # Keeps the loop until somebody writes there.
            return jitney.Response(kept())
        if request.path == "/none":
            return jitney.Response(status=204)
        if request.path == "/head":
            return jitney.Response({"a": 1}, 404, {"X-One": "1"})
        return [request.method, request.path, request.root_path, request.raw_path, request.query, request.text(),
                request.headers.get_all("x-a"), request.client, request.id]

    @jitney.batch(raw=True)
    def several(self, requests):
        return [len(requests)] * len(requests)

    @jitney.endpoint(raw=True)
    def counts(self, request: jitney.HttpRequest):
        yield jitney.Response("0", 202, media_type="text/plain")
        yield "1"
"""


@pytest.fixture
def raw(worker, model, tmp_path):
    settings = {"jitney": {"object": "raw_app:Model", "directory": str(tmp_path)}}
    model(SOURCE, "raw_app.py")
    return worker("", "raw_app:Model", model_yaml_config=settings, mode="concurrent")


def item(endpoint: str, path: str, body: bytes = b"", **told: str) -> tuple[bytes, bytes]:
    facts = {"method": "GET", "path": path, "mount": "", "query": "", "client": "127.0.0.1:7", **told}
    headers = [
        ("x-a", "1"),
        ("X-A", "2"),
        ("url_path", endpoint),
        *((f"jitney {name}", it) for name, it in facts.items()),
    ]
    return wire.item([("body", "", body)], headers)


def pieces_of(raw, one: tuple[bytes, bytes], count: int) -> list[dict]:
    raw.send(wire.batch([one]))
    pieces = []
    for _ in range(count):
        kind, number, _, payload = raw.read_answer()
        assert kind == wire.CHUNK
        pieces += wire.decode_chunk(payload, number)
    assert raw.read_answer()[0] == wire.REPLY
    return pieces


def test_it_is_told_all_about_a_request(raw):
    (answer,) = raw.ask([item("http", "/m/a%20b/", b"hi", method="PUT", mount="/m", query="q=1&e=")])
    assert answer["headers"] == [["Content-Type", "application/json"]]
    *told, identity = json.loads(answer["body"])
    assert told == ["PUT", "/a b/", "/m", "/m/a%20b/", {"q": "1", "e": ""}, "hi", ["1", "2"], ["127.0.0.1", 7]]
    assert identity


def test_an_answer_has_a_status_and_headers_of_its_own(raw):
    (head,), (none,) = raw.ask([item("http", "/head")]), raw.ask([item("http", "/none")])
    assert (head["status"], head["body"]) == (404, b'{"a":1}')
    assert head["headers"] == [["Content-Type", "application/json"], ["X-One", "1"]]
    assert (none["status"], none["headers"], none["body"]) == (204, [], b"")


def test_answers_may_come_in_pieces_or_whole(raw):
    pieces = pieces_of(raw, item("http", "/stream"), 3)
    assert [piece["body"] for piece in pieces] == [b"", b"a", b"b"]
    assert pieces[0]["status"] == 201
    assert pieces[0]["headers"] == [["Content-Type", "text/x"], ["Set-Cookie", "a=1"], ["Set-Cookie", "b=2"]]
    pieces = pieces_of(raw, item("counts", "/"), 2)
    assert [piece["body"] for piece in pieces] == [b"0", b"1"]
    assert (pieces[0]["status"], pieces[0]["headers"]) == (202, [["Content-Type", "text/plain"]])


def test_a_piece_leaves_before_the_next_one_is_made(raw, tmp_path):
    for name in ("one", "two"):
        os.mkfifo(tmp_path / name)
    raw.send(wire.batch([item("http", "/kept")]))
    found = []
    for name in ("one", "two"):
        while name.encode() not in found:
            kind, number, _, payload = raw.read_answer()
            assert kind == wire.CHUNK
            found += [one["body"] for one in wire.decode_chunk(payload, number)]
        (tmp_path / name).write_bytes(b"")
    assert raw.read_answer()[0] == wire.REPLY and found == [b"", b"one", b"two"]


def test_pieces_of_one_turn_of_the_loop_leave_together():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # What is written at once is read at once.
    writer = TurnWriter(FrameWriter(ours))

    async def send() -> None:
        writer.begin(asyncio.get_running_loop())
        writer.send_piece(1, b"", b"a")
        writer.send_piece(2, b"", b"b")
        await asyncio.to_thread(writer.send_piece, 3, b"", b"c")
        writer.send_piece(1, b"", b"d")
        await asyncio.sleep(0)
        writer.send_piece(1, b"", b"e")
        await asyncio.sleep(0)

    asyncio.run(send())
    ours.close()
    reads = list(iter(lambda: theirs.recv(1 << 16), b""))
    theirs.close()
    ends = [read[-1:] for read in reads]
    assert sorted(ends) == [b"b", b"c", b"d", b"e"] and ends.index(b"b") < ends.index(b"d") < ends.index(b"e")
    assert reads[ends.index(b"b")].count(b"a") == 1


def test_several_may_share_a_call_and_handles_bring_what_they_like(raw):
    answers = raw.ask([item("several", "/"), item("several", "/x")])
    assert [answer["body"] for answer in answers] == [b"2", b"2"]
    call = wire.item([("jitney-call", "", bytes(encode_call(("me",), {})))], [("url_path", "http")])
    (answer,) = raw.ask([call])
    assert decode(answer["body"]) == "ME"


def test_other_ways_to_it_lead_nowhere(raw):
    (answer,) = raw.ask([wire.item([("body", "application/json", b"1")], [("url_path", "http")])])
    assert (answer["status"], b"where it is mounted" in answer["body"]) == (404, True)


ANY_SOURCE = """
import jitney

def letters(text):
    yield from text

async def letters_async(text):
    for letter in text:
        yield letter

class Several:
    @jitney.endpoint
    def plain(self, text: str, stream: bool = False):
        return jitney.Response(letters(text), 201, media_type="text/x") if stream else text

    @jitney.endpoint
    async def coroutine(self, text: str, stream: bool = False):
        return jitney.Response(letters_async(text), 201, media_type="text/x") if stream else text

    @jitney.endpoint
    def iterator(self, text: str):
        return iter(text)

class Lone:
    @jitney.endpoint(concurrency=4)
    async def coroutine(self, text: str, stream: bool = False):
        return jitney.Response(letters_async(text), 201, media_type="text/x") if stream else text

    @jitney.endpoint(concurrency=4)
    async def other(self, text: str):
        return text

@jitney.endpoint(overlap=3)
def overlapped(text: str, stream: bool = False):
    return jitney.Response(letters(text), 201, media_type="text/x") if stream else text
"""


@pytest.mark.parametrize(
    ("name", "endpoint", "mode"),
    [
        ("Several", "plain", "single"),
        ("Several", "coroutine", "single"),
        ("Lone", "coroutine", "concurrent"),
        ("overlapped", "", "single"),
    ],
)
def test_any_endpoint_for_one_item_may_answer_in_pieces(worker, model, tmp_path, name, endpoint, mode):
    settings = {"jitney": {"object": f"any_app:{name}", "directory": str(tmp_path)}}
    model(ANY_SOURCE, "any_app.py")
    found = worker("", f"any_app:{name}", model_yaml_config=settings, mode=mode)
    headers = [("url_path", endpoint)]

    def asked(told: dict) -> tuple[bytes, bytes]:
        return wire.item([("body", "application/json", json.dumps(told).encode())], headers)

    pieces = pieces_of(found, asked({"text": "abc", "stream": True}), 4)
    assert [piece["body"] for piece in pieces] == [b"", b"a", b"b", b"c"]
    assert (pieces[0]["status"], pieces[0]["headers"]) == (201, [["Content-Type", "text/x"]])
    (whole,) = found.ask([asked({"text": "abc"})])
    assert (whole["status"], whole["body"]) == (200, b"abc")
    call = wire.item([("jitney-call", "", bytes(encode_call(("ab", True), {})))], headers)
    assert [decode(piece["body"]) for piece in pieces_of(found, call, 2)] == ["a", "b"], "handles get no head"
    text, streams = ("text", "BYTES", (1,), b"\x02\0\0\0ab"), ("stream", "BOOL", (1,), b"\1")
    (answer,) = found.ask([wire.tensors([text, streams], headers=headers)])
    assert answer["tensors"][0]["value"] == b"\x02\0\0\0ab", "an answer in tensors is whole"


def test_an_iterator_without_a_response_is_no_stream(worker, model, tmp_path):
    settings = {"jitney": {"object": "any_app:Several", "directory": str(tmp_path)}}
    model(ANY_SOURCE, "any_app.py")
    found = worker("", "any_app:Several", model_yaml_config=settings)
    (answer,) = found.ask([wire.item([("text", "", b"abc")], [("url_path", "iterator")])])
    assert (answer["status"], b"has no JSON form" in answer["body"]) == (500, True)


def test_paths_are_written_down_for_the_server():
    @jitney.model(mount="/shop", health_routes={"/livez": "live"})
    class Shop:
        @jitney.endpoint(raw=True)
        def http(self, request): ...

        @jitney.batch(route="post /sum", metric_names=[("sizes", {"of": "shop"})])
        def sum(self, x: list[float]) -> list[float]:
            return x

    told = api(jitney.define(Shop))
    assert told["http"] == {
        "raw": ["http"],
        "routes": [
            {"path": "/sum", "methods": ["POST"], "endpoint": "sum"},
            {"path": "/livez", "methods": ["GET"], "answers": "live"},
        ],
        "mount": {"prefix": "/shop", "endpoint": "http"},
    }
    assert told["metrics"] == {"sum": [{"name": "sizes", "labels": {"of": "shop"}}]}
    assert list(told["paths"]) == ["/sum"], "an endpoint is described once, where its route is"


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(jitney.DefinitionError, match="one parameter"):
        jitney.define(jitney.endpoint(raw=True)(lambda a, b: a))
    with pytest.raises(jitney.DefinitionError, match="needs an endpoint with raw=True"):
        api(jitney.define(jitney.model(mount="/x")(type("M", (), {"predict": lambda self, x: x}))))
    for wrong in ({"route": "sum"}, {"mount": "x"}, {"health_routes": {"/a": "fine"}}, {"metric_names": ["a"]}):
        with pytest.raises(jitney.DefinitionError):
            jitney.endpoint(**wrong)
    with pytest.raises(ValueError, match="status"):
        jitney.Response(status=99)
